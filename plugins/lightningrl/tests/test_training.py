"""verl's own `fit()` with a real vLLM server, on tiny models: exactness, selection of versions, export, kill and resume."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.filterwarnings("default")]
if importlib.util.find_spec("verl") is None or importlib.util.find_spec("vllm") is None:
    pytest.skip("verl or vLLM is not installed", allow_module_level=True)

SETTINGS = {
    "group_size": 4,
    "tasks_per_step": 3,
    "steps": 3,
    "learning_rate": 1e-3,
    "max_prompt_tokens": 224,
    "max_response_tokens": 32,
    "server_kv_bytes": 64 << 20,
    "server_max_sequences": 32,
    "threads": 1,
    "device": "cpu",
    "save_every": 1,
}
Train = Callable[..., Path]


def train(
    directory: Path, model: Path, *, resumed: bool = False, kill_after: int | None = None, **settings: Any
) -> int:
    """Run `train_tiny.py`; returns its exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    specification = {
        "directory": str(directory),
        "resumed": resumed,
        "kill_after": kill_after,
        "settings": {**SETTINGS, "model": str(model), **settings},
    }
    file = directory / "specification.json"
    file.write_text(json.dumps(specification))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, str(Path(__file__).with_name("train_tiny.py")), str(file)]
    with open(directory / "output.txt", "a") as output:
        return subprocess.run(command, env=environment, stdout=output, stderr=output, check=False).returncode


def record_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def requests_of(directory: Path, mode: str = "train") -> list[list[int]]:
    lines = [json.loads(line) for line in (directory / "requests.jsonl").read_text().splitlines()]
    return [tasks for kind, tasks in lines if kind == mode]


def worst_difference(folder: Path, calls: list[dict[str, Any]]) -> float:
    """Largest |log-prob difference| between what the server recorded and a plain Transformers forward of `folder`."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    worst = 0.0
    for call in calls:
        ids = torch.tensor([call["prompt"] + call["sampled"]])
        with torch.no_grad():
            logits = torch.log_softmax(model(input_ids=ids).logits[0, len(call["prompt"]) - 1 : -1].float(), -1)
        mine = logits.gather(-1, torch.tensor(call["sampled"])[:, None])[:, 0]
        worst = max(worst, float((mine - torch.tensor(call["logprobs"])).abs().max()))
    return worst


def files_left() -> list[str]:
    return [file.name for file in Path("/dev/shm").glob("leyden-weights-*")]


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Three steps of full fine-tuning; returns the run's folder."""
    directory = tmp_path_factory.mktemp("full") / "run"
    assert train(directory, tiny_model) == 0, (directory / "output.txt").read_text()[-3000:]
    return directory


@pytest.fixture(scope="session")
def tied_lora_run(tmp_path_factory: pytest.TempPathFactory, tied_model: Path) -> Path:
    """Two steps of LoRA on a model with tied embeddings; returns the run's folder."""
    directory = tmp_path_factory.mktemp("lora") / "run"
    status = train(directory, tied_model, steps=2, lora_rank=4, learning_rate=1e-2, recompute_logprobs=True)
    assert status == 0, (directory / "output.txt").read_text()[-3000:]
    return directory


def test_every_call_carries_the_version_of_its_weights(full_run: Path) -> None:
    calls = record_of(full_run)["calls"]
    assert {call["version"] for call in calls if call["mode"] == "train"} == {0, 1, 2}
    assert {call["version"] for call in calls if call["mode"] == "val"} == {0, 3}


def test_server_equals_trainer_after_every_sync(full_run: Path) -> None:
    logged = record_of(full_run)["logged"]
    for step in "123":
        assert logged[step]["sync/probe_max_abs_logprob_difference"] <= 1e-4
    means = {logged[step]["sync/probe_mean_logprob"] for step in "123"}
    assert len(means) == 3  # the weights did change


def test_recorded_log_probs_equal_a_plain_forward(full_run: Path, tiny_model: Path) -> None:
    """Before training, those of the base model; after it, those of the exported policy."""
    calls = record_of(full_run)["calls"]
    first = [call for call in calls if call["version"] == 0 and call["mode"] == "train"]
    assert worst_difference(tiny_model, first) <= 1e-3
    third = [call for call in calls if call["version"] == 2]
    assert worst_difference(tiny_model, third) > 0.01
    # Greedy log-probs are those of a distribution with one answer: compare a sampled step's through its checkpoint.
    assert worst_difference(full_run / "policy", first) > 0.01


def test_metrics_account_for_the_step(full_run: Path) -> None:
    logged = record_of(full_run)["logged"]
    for step in "123":
        assert logged[step]["train/rollouts"] == 12
        assert logged[step]["train/calls"] == 18
        assert logged[step]["tree/nodes"] < logged[step]["tree/tokens"]
        assert logged[step]["loss/gradient_norm"] > 0
    assert "val/reward" in logged["0"]
    assert "val/reward" in logged["3"]
    assert "val/reward" not in logged["1"]


def test_nothing_is_left_behind(full_run: Path) -> None:
    assert not files_left()
    policy = sorted(file.name for file in (full_run / "policy").iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(policy)
    kept = sorted(folder.name for folder in (full_run / "checkpoints").glob("global_step_*"))
    assert kept == ["global_step_2", "global_step_3"]


def test_tied_embeddings_and_lora(tied_lora_run: Path, tied_model: Path) -> None:
    record = record_of(tied_lora_run)
    for step in "12":
        assert record["logged"][step]["sync/probe_max_abs_logprob_difference"] <= 1e-4
    sampled = [call for call in record["calls"] if call["version"] == 0 and call["mode"] == "train"]
    assert worst_difference(tied_model, sampled) <= 1e-3


def test_lora_export_is_a_merged_folder_and_an_adapter(tied_lora_run: Path, tied_model: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    merged = AutoModelForCausalLM.from_pretrained(tied_lora_run / "policy", dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    ids = torch.arange(3, 60)[None]
    with torch.no_grad():
        before = base(input_ids=ids).logits
        after = merged(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, tied_lora_run / "policy-adapter")(input_ids=ids).logits
    assert float((after - before).abs().max()) > 0.01
    torch.testing.assert_close(after, adapted, rtol=1e-4, atol=1e-4)


def test_a_killed_run_goes_on_from_its_last_checkpoint(full_run: Path, tiny_model: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    assert train(directory, tiny_model, kill_after=2) == -signal.SIGKILL
    whole = [folder.parent for folder in (directory / "checkpoints").glob("global_step_*/complete.json")]
    steps = sorted(int(folder.name.removeprefix("global_step_")) for folder in whole)
    assert steps[-1] >= 2
    (directory / "checkpoints" / "global_step_9").mkdir()  # as a kill in the middle of saving leaves it
    before = len(requests_of(directory))
    assert train(directory, tiny_model, resumed=True) == 0, (directory / "output.txt").read_text()[-3000:]
    record = record_of(directory)
    assert record["summary"]["policy"] == str(directory / "policy")
    after = [call for call in record["calls"] if call["mode"] == "train"]
    assert {call["version"] for call in after} == set(range(steps[-1], 3))
    # The order of the tasks is that of a run without a kill.
    assert requests_of(directory)[before:] == requests_of(full_run)[steps[-1] :]
    assert not files_left()
