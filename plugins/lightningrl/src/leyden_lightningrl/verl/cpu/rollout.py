"""verl's two rollout seams for a vLLM server process on the CPU: the replica (driver) and the weight adapter (worker)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from leyden_lightningrl.verl.config import ROLLOUT_NAME as NAME
from leyden_lightningrl.verl.cpu.server import PROCESSES, ServerHandle, load_weights

SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def settings_of(config: Any) -> dict[str, Any]:
    """Our part of verl's rollout configuration: `addresses`, `weights_files`, `prefix_tree`, `probe_tokens`."""
    return dict((config.engine_kwargs or {}).get(NAME) or {})


class VllmReplica(RolloutReplica):  # type: ignore[misc]
    """A replica whose server process was started before the trainer (starting it takes as long as loading the worker)."""

    async def launch_servers(self) -> None:
        self._server_address = settings_of(self.config)["addresses"][self.replica_rank]
        await asyncio.to_thread(PROCESSES[self._server_address].wait_healthy)
        handle = (
            ray.remote(num_cpus=0, max_concurrency=64)(ServerHandle)
            .options(name=f"{NAME}_{self.replica_rank}")
            .remote(self._server_address)
        )
        await handle.ready.remote()
        self.servers = [handle]
        self._server_handle = handle


class WeightFile:
    """One safetensors file that is laid out once and then written in place at every sync, through shared memory.

    A new file per sync would cost a second copy of the model and, on first touch, many seconds of page faults.
    """

    def __init__(self, path: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        header: dict[str, dict[str, Any]] = {}
        offset = 0
        shapes: list[tuple[str, torch.Tensor]] = []
        for name, tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            dtype = SAFETENSORS_DTYPES[tensor.dtype]
            header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
            offset += size
            shapes.append((name, tensor))
        encoded = json.dumps(header).encode()
        encoded += b" " * (-(len(encoded) + 8) % 64)  # aligns the data, as safetensors does
        base = 8 + len(encoded)
        with open(path, "wb") as file:
            file.write(len(encoded).to_bytes(8, "little") + encoded)
            file.truncate(base + offset)
        self.path = path
        buffer = torch.from_file(path, shared=True, size=base + offset, dtype=torch.uint8)
        self.views: dict[str, torch.Tensor] = {}
        for name, tensor in shapes:
            start, end = header[name]["data_offsets"]
            self.views[name] = buffer[base + start : base + end].view(tensor.dtype).view(tensor.shape)
            self.views[name].copy_(tensor)

    def write(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Write the tensors in place. Raises `ValueError` if they are not the ones that the file was laid out for."""
        seen = set()
        for name, tensor in tensors:
            if name not in self.views:
                raise ValueError(f"parameter {name!r} was not among those of the first weight sync")
            self.views[name].copy_(tensor)
            seen.add(name)
        if missing := self.views.keys() - seen:
            raise ValueError(f"{len(missing)} parameters are missing from a weight sync, e.g. {min(missing)!r}")


class VllmWeightAdapter(BaseRollout):  # type: ignore[misc]
    """Lives in the trainer's worker; hands verl's stream of parameters to the server process."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        per_replica = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        rank = int(os.environ["RANK"])
        self.replica_rank = rank // per_replica if replica_rank == -1 else replica_rank
        self.is_leader = rank % per_replica == 0
        settings = settings_of(self.config)
        self.address: str = settings["addresses"][self.replica_rank]
        self.path: str = settings["weights_files"][self.replica_rank]
        self.file: WeightFile | None = None
        self.tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released, see `release`."""

    async def release(self) -> None:
        """A CPU server shares no device memory with the trainer."""

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **_: Any,
    ) -> None:
        """Every rank runs the generator (it holds collectives); the replica's first rank writes and loads."""
        if wire_format != "named_tensors":
            raise NotImplementedError(f"the CPU rollout server takes whole tensors, not {wire_format!r}")
        if not self.is_leader:
            for _tensor in weights:
                pass
            return
        # With tied embeddings the output layer is the embedding matrix: sending it would be a second copy.
        tensors = ((n, t.detach()) for n, t in weights if not (self.tied and n == "lm_head.weight"))
        if self.file is None:
            self.file = WeightFile(self.path, tensors)
        else:
            self.file.write(tensors)
        await asyncio.to_thread(load_weights, self.address, self.path, global_steps or 0)


RolloutReplicaRegistry.register(NAME, lambda: VllmReplica)
# verl 0.9 has a registry for replicas but none for worker-side adapters; this private table is all there is.
rollout_base._ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.{VllmWeightAdapter.__name__}"
