"""verl's training workers and FSDP2 engines on a CPU: subclasses, registered where verl looks for them.

Importing this module (Ray does, by unpickling a class of it) also registers the rollout of `.rollout` in the worker.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import convert_weight_keys
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

from leyden_lightningrl.verl.cpu import rollout
from leyden_lightningrl.verl.cpu.server import prompt_logprobs
from leyden_lightningrl.verl.cpu.tree import PrefixTreeMixin
from leyden_lightningrl.verl.workers import PolicyWorker


class WithoutPinnedMemory:
    """verl gives forward-only FSDP2 engines an offload policy with pinned memory; pinning needs an accelerator."""

    def _build_fsdp_module(self, module: Any) -> Any:
        forward_only = self.engine_config.forward_only  # type: ignore[attr-defined]
        self.engine_config.forward_only = False  # type: ignore[attr-defined]
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config.forward_only = forward_only  # type: ignore[attr-defined]


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CpuLanguageModelEngine(PrefixTreeMixin, WithoutPinnedMemory, FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's FSDP2 engine with the prefix tree, and LoRA weights merged without rounding."""

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Merged weights in the engine's own dtype (verl's method rounds them to bfloat16; our server is float32)."""
        with merged_lora_context(self.module, backup_adapters=True):
            parameters = normalize_peft_param_name(self.module.state_dict())
            for name, parameter in convert_weight_keys(parameters, self.module).items():
                whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                # The merge is undone when the context ends, which may be before the consumer has used the tensor.
                yield name, whole.detach().clone()


@EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device="cpu")
class CpuValueModelEngine(WithoutPinnedMemory, FSDPEngineWithValueHead):  # type: ignore[misc]
    """verl's critic engine; verl itself asks for flash attention here, which a CPU does not have."""

    def _build_module(self) -> Any:
        from transformers import AutoModelForTokenClassification
        from verl.utils.torch_dtypes import PrecisionType

        config = self.model_config.hf_config
        config.num_labels, config.classifier_dropout, config.hidden_dropout, config.summary_dropout_prob = (
            1,
            0.0,
            "0",
            0.0,
        )
        dtype = PrecisionType.to_dtype(self.engine_config.model_dtype or "fp32")
        model = AutoModelForTokenClassification.from_pretrained(
            self.model_config.local_path, config=config, dtype=dtype, attn_implementation="sdpa"
        )
        return model.to(dtype)


def keep_freed_memory() -> None:
    """Make this process reuse the memory it frees (glibc only).

    Otherwise every large tensor is mapped anew, and its pages are faulted in anew, at each use: 0.09 s instead of 0.01 s
    for 120 MB where this was measured, and an update makes dozens of them.
    """
    trim_threshold, mmap_max = -1, -4  # glibc's names for the two parameters, <malloc.h>
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
    except (OSError, AttributeError):
        pass


def join_process_group() -> None:
    """verl would ask for the backend "cpu:gloo,cpu:gloo", which torch refuses; it leaves an existing group alone."""
    if not torch.distributed.is_initialized():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)


class CpuTrainingWorker(TrainingWorker):  # type: ignore[misc]
    """verl's worker for one model (here: a critic)."""

    def __init__(self, config: Any) -> None:
        keep_freed_memory()
        join_process_group()
        super().__init__(config=config)


class CpuPolicyWorker(PolicyWorker):
    """verl's worker for the policy, its reference and its rollout, plus the check of every weight sync."""

    def __init__(self, config: Any, role: str, distillation_config: Any = None, **kwargs: Any) -> None:
        keep_freed_memory()
        join_process_group()
        super().__init__(config=config, role=role, distillation_config=distillation_config, **kwargs)
        self._settings = rollout.settings_of(config.rollout)
        self._sync: dict[str, float] = {}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def init_model(self) -> None:
        super().init_model()
        for worker in (self.actor, self.ref):
            if worker is not None:
                worker.engine.prefix_tree = bool(self._settings["prefix_tree"])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)  # type: ignore[untyped-decorator]
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        started = time.perf_counter()
        answer = await super().update_weights(global_steps=global_steps, mode=mode)
        self._sync = {"sync/seconds": time.perf_counter() - started}
        if tokens := int(self._settings["probe_tokens"]):
            started = time.perf_counter()
            self._sync |= self._probe(tokens)
            self._sync["sync/probe_seconds"] = time.perf_counter() - started
        return answer

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def sync_report(self) -> dict[str, float]:
        """What the last weight sync took and how well it went, and what the prefix tree saved so far."""
        engine = self.actor.engine
        return self._sync | {"tree/tokens": float(engine.tree_tokens), "tree/nodes": float(engine.tree_nodes)}

    def _probe(self, tokens: int) -> dict[str, float]:
        """Largest |log-prob difference| between the trainer's weights and the server on one fixed random sequence."""
        engine = self.actor.engine
        generator = torch.Generator().manual_seed(0)
        vocabulary = min(int(engine.model_config.hf_config.vocab_size), 256)
        ids = torch.randint(3, vocabulary, (tokens,), generator=generator)
        with torch.no_grad(), engine.eval_mode():
            logits = engine.module(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
        mine = torch.log_softmax(logits, -1)[torch.arange(tokens - 1), ids[1:]]
        if not self.rollout.is_leader:
            return {}
        theirs = torch.tensor(prompt_logprobs(self.rollout.address, ids.tolist()))
        return {
            "sync/probe_max_abs_logprob_difference": float((mine - theirs).abs().max()),
            "sync/probe_mean_logprob": float(theirs.mean()),
        }


class CpuResourcePoolManager(ResourcePoolManager):  # type: ignore[misc]
    """Resource pools that ask Ray for CPUs only."""

    def create_resource_pool(self) -> None:
        for name, processes in self.resource_pool_spec.items():
            self.resource_pool_dict[name] = RayResourcePool(
                process_on_nodes=processes, use_gpu=False, max_colocate_count=1, name_prefix=name
            )
