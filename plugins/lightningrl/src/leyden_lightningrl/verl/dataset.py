"""The data set that verl draws from: the numbers of the tasks. The tasks themselves stay with the TrainingRun."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class TaskNumbers(Dataset):  # type: ignore[misc]
    """Built by verl with `data_files` = how many tasks there are (see `leyden_lightningrl.verl.config`)."""

    def __init__(self, data_files: str, **_: Any) -> None:
        self.count = int(data_files)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        # verl counts the prompts of a batch by this column and gives each a uid.
        return {"raw_prompt": [{"role": "user", "content": str(index)}], "task": index}
