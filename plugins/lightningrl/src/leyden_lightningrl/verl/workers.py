"""verl's policy worker with one more ability: writing the trained policy as a Hugging Face folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import ActorRolloutRefWorker

COPIED = ("*.json", "*.jinja", "*.model", "*.txt")
"""What a model folder holds beside its weights: configuration, tokenizer, chat template."""


class PolicyWorker(ActorRolloutRefWorker):  # type: ignore[misc]
    """Stock worker on every device, plus `export_policy`."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def export_policy(self, folder: str) -> None:
        """Write the whole weights (LoRA merged) to `folder`, and a LoRA adapter beside it in `folder`-adapter.

        The folder appears under its name only when it is complete. All ranks must call this.
        """
        leader = torch.distributed.get_rank() == 0
        parameters, _ = self.actor.engine.get_per_tensor_param()
        tied = bool(getattr(self.actor.engine.model_config.hf_config, "tie_word_embeddings", False))
        whole: dict[str, torch.Tensor] = {}
        for name, tensor in parameters:  # every rank: the generator holds collectives
            if leader and not (tied and name == "lm_head.weight"):
                whole[name] = tensor.detach().cpu().contiguous().clone()
        if leader:
            write_folder(Path(folder), whole, Path(self.actor.engine.model_config.local_path))
        del whole
        self._export_adapter(Path(f"{folder}-adapter"), leader)
        torch.distributed.barrier()

    def _export_adapter(self, folder: Path, leader: bool) -> None:
        module = self.actor.engine.module
        if not hasattr(module, "peft_config"):
            return
        from peft import get_peft_model_state_dict

        state = {
            name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            for name, tensor in get_peft_model_state_dict(module).items()
        }
        if leader:
            from safetensors.torch import save_file

            with Completed(folder) as made:
                save_file(
                    {name: t.detach().cpu().contiguous() for name, t in state.items()},
                    made / "adapter_model.safetensors",
                )
                settings = {name: plain(value) for name, value in module.peft_config["default"].to_dict().items()}
                settings |= {
                    "base_model_name_or_path": str(self.actor.engine.model_config.local_path),
                    "inference_mode": True,
                }
                (made / "adapter_config.json").write_text(json.dumps(settings, indent=2))


def plain(value: Any) -> Any:
    """`value` as JSON can hold it."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


class Completed:
    """A folder that is filled under another name and renamed when whole; an older one of the name is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = folder.with_name(f".{folder.name}.{os.getpid()}")

    def __enter__(self) -> Path:
        shutil.rmtree(self.made, ignore_errors=True)
        self.made.mkdir(parents=True)
        return self.made

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            shutil.rmtree(self.made, ignore_errors=True)
            return
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.made.rename(self.folder)


def write_folder(folder: Path, tensors: dict[str, torch.Tensor], base: Path) -> None:
    """A Hugging Face folder of `tensors`, with everything but the weights taken from `base`."""
    from safetensors.torch import save_file

    with Completed(folder) as made:
        for pattern in COPIED:
            for file in base.glob(pattern):
                if not file.name.endswith(".index.json"):
                    shutil.copyfile(file, made / file.name)
        config = json.loads((base / "config.json").read_text())
        config.pop("torch_dtype", None)
        config["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
        (made / "config.json").write_text(json.dumps(config, indent=2))
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
