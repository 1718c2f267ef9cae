"""The trainer against plain PyTorch: log-probs, gradients of the prefix tree, and a whole update. One process, no Ray."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.heavy,
    # Third parties warn as they are imported and built; what we assert is numbers.
    pytest.mark.filterwarnings("default"),
]
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)

LEARNING_RATE, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.01, 1.0
Worker = Callable[..., Any]


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    """One rank of gloo."""
    import torch

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.set_num_threads(threads)
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name)


@pytest.fixture
def worker(process_group: None) -> Worker:
    """Make a worker of verl's for a model folder, as the CPU path configures it."""

    def make(model: Path, *, prefix_tree: bool = True, lora_rank: int = 0) -> Any:
        from verl.trainer.config import CheckpointConfig
        from verl.workers.config import (
            FSDPActorConfig,
            FSDPEngineConfig,
            FSDPOptimizerConfig,
            HFModelConfig,
            TrainingWorkerConfig,
        )
        from verl.workers.utils.losses import ppo_loss

        from leyden_lightningrl.verl.cpu.workers import CpuTrainingWorker

        precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
        engine = FSDPEngineConfig(
            strategy="fsdp2",
            model_dtype="fp32",
            mixed_precision=precision,
            use_torch_compile=False,
            use_dynamic_bsz=True,
            max_token_len_per_gpu=1 << 40 if prefix_tree else 200,
            infer_max_token_len_per_gpu=1 << 40 if prefix_tree else 200,
            use_orig_params=bool(lora_rank),
        )
        hf = HFModelConfig(
            path=str(model),
            use_remove_padding=False,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "sdpa"},
            lora_rank=lora_rank,
            lora_alpha=16,
            lora={"merge": True},
        )
        optimizer = FSDPOptimizerConfig(
            lr=LEARNING_RATE, betas=BETAS, weight_decay=DECAY, clip_grad=CLIP, total_training_steps=10
        )
        made = CpuTrainingWorker(
            TrainingWorkerConfig(
                model_type="language_model",
                model_config=hf,
                engine_config=engine,
                optimizer_config=optimizer,
                checkpoint_config=CheckpointConfig(save_contents=["model", "optimizer", "extra"]),
            )
        )
        made.reset()
        made.engine.prefix_tree = prefix_tree
        actor = FSDPActorConfig(
            strategy="fsdp2",
            rollout_n=1,
            ppo_mini_batch_size=8,
            use_dynamic_bsz=True,
            use_kl_loss=False,
            entropy_coeff=0.0,
        )
        made.set_loss_fn(partial(ppo_loss, config=actor))
        return made

    return make


def make_rows() -> list[dict[str, Any]]:
    """Two groups of rows that share a system prompt, one row with a masked stretch, one group without advantage."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 320, (count,), generator=generator).tolist()  # type: ignore[no-any-return]

    system = ids(20)
    rows = []
    for group in range(3):
        question = ids(5 + group)
        for index in range(4):
            answer = ids(3 + index)
            mask = [1] * len(answer)
            if index == 3:  # two answers with what the environment said between them
                answer += ids(4) + ids(3)
                mask += [0] * 4 + [1] * 3
            advantage = 0.0 if group == 2 else (index - 1.5) / 1.2
            rows.append({"prompt": system + question, "response": answer, "mask": mask, "advantage": advantage})
    rows[1] = {**rows[0], "advantage": rows[1]["advantage"]}  # the same answer sampled twice
    return rows


def batch_of(rows: list[dict[str, Any]], old: list[Any] | None = None) -> Any:
    """The rows as the trainer's TensorDict."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    def nested(values: list[Any], dtype: Any) -> Any:
        return torch.nested.as_nested_tensor(
            [torch.as_tensor(value, dtype=dtype) for value in values], layout=torch.jagged
        )

    fields = {
        "prompts": nested([row["prompt"] for row in rows], torch.long),
        "responses": nested([row["response"] for row in rows], torch.long),
        "input_ids": nested([row["prompt"] + row["response"] for row in rows], torch.long),
        "position_ids": nested([range(len(row["prompt"] + row["response"])) for row in rows], torch.long),
        "response_mask": nested([row["mask"] for row in rows], torch.long),
        "loss_mask": nested([row["mask"] for row in rows], torch.long),
    }
    if old is not None:
        fields["old_log_probs"] = nested(old, torch.float32)
        advantages = [[row["advantage"] * trained for trained in row["mask"]] for row in rows]
        fields["advantages"] = nested(advantages, torch.float32)
    made = TensorDict(fields, batch_size=len(rows))
    tu.assign_non_tensor(made, temperature=1.0)
    return made


def log_probs(worker: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """Per row, the worker's log-probs of its response."""
    from verl.utils import tensordict_utils as tu

    batch = batch_of(rows)
    tu.assign_non_tensor(batch, calculate_entropy=False, compute_loss=False)
    flat = tu.get(worker.infer_batch(batch), "log_probs")
    return [row[len(source["prompt"]) - 1 : -1].float() for row, source in zip(flat.unbind(), rows, strict=True)]


def update(worker: Any, rows: list[dict[str, Any]], old: list[Any]) -> dict[str, Any]:
    """One update by the worker; returns its metrics."""
    from verl.utils import tensordict_utils as tu

    batch = batch_of(rows, old)
    tu.assign_non_tensor(
        batch,
        calculate_entropy=False,
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=len(rows),
        mini_batch_size=len(rows),
        epochs=1,
        seed=1,
        dataloader_kwargs={"shuffle": False},
        compute_loss=True,
    )
    return dict(tu.get(worker.train_mini_batch(batch), "metrics"))


def plain_model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")


def plain_log_probs(model: Any, row: dict[str, Any]) -> Any:
    """A plain Transformers forward of one row."""
    import torch

    ids = torch.tensor([row["prompt"] + row["response"]])
    logits = torch.log_softmax(model(input_ids=ids).logits[0, len(row["prompt"]) - 1 : -1].float(), -1)
    return logits.gather(-1, torch.tensor(row["response"])[:, None])[:, 0]


def plain_update(model: Any, optimizer: Any, rows: list[dict[str, Any]], old: list[Any]) -> tuple[float, float]:
    """The token-mean clipped loss and its update, written out; returns loss and gradient norm."""
    import torch

    total = sum(sum(row["mask"]) for row in rows)
    loss = torch.zeros(())
    for row, before in zip(rows, old, strict=True):
        ratio = torch.exp(plain_log_probs(model, row) - before)
        terms = torch.max(-row["advantage"] * ratio, -row["advantage"] * ratio.clamp(0.8, 1.2))
        loss = loss + (terms * torch.tensor(row["mask"])).sum() / total
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return loss.item(), norm.item()


def weights(worker: Any) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in worker.engine.get_per_tensor_param()[0]}


@pytest.mark.parametrize("prefix_tree", [True, False])
def test_log_probs_equal_a_plain_forward(worker: Worker, tiny_model: Path, prefix_tree: bool) -> None:
    import torch

    rows = make_rows()
    mine = log_probs(worker(tiny_model, prefix_tree=prefix_tree), rows)
    model = plain_model(tiny_model)
    with torch.no_grad():
        for row, values in zip(rows, mine, strict=True):
            trained = torch.tensor(row["mask"]).bool()
            torch.testing.assert_close(values[trained], plain_log_probs(model, row)[trained], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_tree_and_plain_rows_have_the_same_gradients(
    worker: Worker, tiny_model: Path, tied_model: Path, tied: bool
) -> None:
    import torch

    from leyden_lightningrl.verl.cpu.tree_attention import BLOCK

    rows = make_rows()
    model = tied_model if tied else tiny_model
    gradients = []
    for prefix_tree in (True, False):
        engine = worker(model, prefix_tree=prefix_tree).engine
        old = [torch.zeros(len(row["response"])) - 5.0 for row in rows]
        batch = batch_of(rows, old)
        # One backward pass without the optimiser's step.
        from verl.utils import tensordict_utils as tu
        from verl.workers.config import FSDPActorConfig
        from verl.workers.utils.losses import ppo_loss

        actor = FSDPActorConfig(
            strategy="fsdp2", rollout_n=1, ppo_mini_batch_size=8, use_dynamic_bsz=True, clip_ratio=1e6, clip_ratio_low=1e6,
            clip_ratio_high=1e6, clip_ratio_c=1e6,
        )  # fmt: skip
        tu.assign_non_tensor(
            batch, calculate_entropy=False, global_batch_size=len(rows), use_dynamic_bsz=True,
            max_token_len_per_gpu=engine.engine_config.max_token_len_per_gpu, use_remove_padding=False,
            distillation_use_topk=False, distillation_only=False,
        )  # fmt: skip
        with engine.train_mode():
            engine.optimizer_zero_grad()
            engine.forward_backward_batch(batch, loss_function=partial(ppo_loss, config=actor))
            gradients.append({name: p.grad.full_tensor().clone() for name, p in engine.module.named_parameters()})
        if prefix_tree:
            assert engine.blockwise
            assert 2 * BLOCK > engine.tree_nodes > BLOCK  # more than one block
            assert engine.tree_nodes < engine.tree_tokens / 3
    tree, plain = gradients
    assert tree.keys() == plain.keys()
    difference = sum(float((tree[name] - plain[name]).norm() ** 2) for name in plain) ** 0.5
    size = sum(float(plain[name].norm() ** 2) for name in plain) ** 0.5
    assert size > 1e-3
    assert difference / size <= 1e-5


def test_updates_equal_plain_pytorch(worker: Worker, tiny_model: Path) -> None:
    """Golden: three updates by verl's worker with the tree, and the same three written out in plain PyTorch."""
    import torch

    rows = make_rows()
    trainer = worker(tiny_model)
    model = plain_model(tiny_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=DECAY)
    old = log_probs(trainer, rows)
    for _ in range(3):
        metrics = update(trainer, rows, old)
        loss, norm = plain_update(model, optimizer, rows, old)
        assert metrics["loss"][0] == pytest.approx(loss, rel=1e-4, abs=1e-6)
        assert metrics["grad_norm"][0] == pytest.approx(norm, rel=1e-4)
    theirs = weights(trainer)
    moved = 0.0
    start = plain_model(tiny_model).state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-4, atol=1e-5)
        moved = max(moved, float((tensor - start[name]).abs().max()))
    assert moved > 1e-3


def test_merged_lora_weights_are_not_rounded(worker: Worker, tiny_model: Path) -> None:
    import torch

    rows = make_rows()
    trainer = worker(tiny_model, lora_rank=4)
    for _ in range(3):
        update(trainer, rows, log_probs(trainer, rows))
    after = log_probs(trainer, rows)
    merged = weights(trainer)
    base = plain_model(tiny_model).state_dict()
    assert merged.keys() == base.keys()
    assert any(not torch.equal(merged[name], base[name]) for name in base)
    model = plain_model(tiny_model)
    model.load_state_dict(merged)
    with torch.no_grad():
        for row, values in zip(rows, after, strict=True):
            trained = torch.tensor(row["mask"]).bool()
            torch.testing.assert_close(values[trained], plain_log_probs(model, row)[trained], rtol=1e-5, atol=2e-5)
    again = log_probs(trainer, rows)  # the adapters are back in their place after the export
    for before, later in zip(after, again, strict=True):
        torch.testing.assert_close(before, later, rtol=0, atol=1e-6)
