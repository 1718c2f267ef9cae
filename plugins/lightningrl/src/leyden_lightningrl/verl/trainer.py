"""verl's synchronous V1 trainer with the few methods replaced that Leyden decides; `fit()` is verl's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.workers.utils.padding import response_to_nested

from leyden.errors import LeydenError
from leyden_lightningrl.checkpoints import complete, prune
from leyden_lightningrl.config import Settings
from leyden_lightningrl.verl.manager import RolloutManager
from leyden_lightningrl.verl.workers import PolicyWorker


class SyncFailed(LeydenError, RuntimeError):
    """After a weight sync the server does not compute what the trainer computes."""


class LeydenTrainer(get_trainer_cls("sync")):  # type: ignore[misc]
    """Replaces: which workers run, validation, advantages, the accounting of mini-batches, and what is logged."""

    agent_loop_manager: RolloutManager
    resource_pool_manager: Any

    def __init__(self, config: Any, settings: Settings, device: str) -> None:
        super().__init__(config=config)
        self.settings, self.device = settings, device
        self.replay_buffer.poll_interval = 0.05  # the manager has written everything before verl looks
        self._pending_sync_metrics: dict[str, float] = {}

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        policy_worker, other_worker = PolicyWorker, None
        if self.device == "cpu":
            from leyden_lightningrl.verl.cpu.workers import CpuPolicyWorker, CpuResourcePoolManager, CpuTrainingWorker

            policy_worker, other_worker = CpuPolicyWorker, CpuTrainingWorker
            self.resource_pool_manager = CpuResourcePoolManager(
                resource_pool_spec=self.resource_pool_manager.resource_pool_spec, mapping=self.mapping
            )
        for role in list(self.role_worker_mapping):
            if role != Role.Critic:
                self.role_worker_mapping[role] = ray.remote(policy_worker)
            elif other_worker is not None:
                self.role_worker_mapping[role] = ray.remote(other_worker)

    def on_init_end(self) -> None:
        super().on_init_end()
        self._check_sync()

    def on_step_end(self) -> None:
        super().on_step_end()
        self._check_sync()

    def _check_sync(self) -> None:
        """Take the workers' account of the weight sync. Raises `SyncFailed` if the probe is beyond its tolerance."""
        if self.device != "cpu":
            return
        reports: list[dict[str, float]] = self.actor_rollout_wg.sync_report()
        merged = {name: max(report[name] for report in reports if name in report) for name in reports[0]}
        self._pending_sync_metrics = merged
        difference = merged.get("sync/probe_max_abs_logprob_difference", 0.0)
        if not difference <= self.settings.probe_tolerance:
            raise SyncFailed(
                f"after the weight sync of step {self.global_steps} the server's log-probs differ from the trainer's by up "
                f"to {difference:.3g} (probe_tolerance={self.settings.probe_tolerance}): the server did not take all weights"
            )

    def _validate(self) -> dict[str, float]:
        return self.agent_loop_manager.validate(self.global_steps)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Rows per step vary; they are padded only so far that ranks and mini-batches get equal shares."""
        return int(dp_size * self.settings.updates_per_step)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Let verl do what else belongs here (rollout correction), then put the rollout-level advantages in place."""
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "leyden_advantages"]
        )
        mask = data["response_mask"]
        rows = zip(mask.unbind(), data["leyden_advantages"].unbind(), batch.tags, strict=True)
        # A padding row is a copy of a real one with a response of its own length.
        values = [torch.zeros(len(m)) if tag.get("is_padding") else advantages for m, advantages, tag in rows]
        padded = torch.nested.as_nested_tensor(values, layout=torch.jagged).to_padded_tensor(0.0)
        nested = response_to_nested(padded, mask)
        fields = TensorDict({"advantages": nested, "returns": nested}, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update, with mini-batches counted in rows; no update where nothing has a gradient.

        Without this an all-equal step would still move the weights, by the optimiser's momentum alone.
        """
        settings = self.settings
        metrics["leyden/updates_skipped"] = 0.0
        if not (self.agent_loop_manager.batch.teaches or settings.kl_coefficient or settings.entropy_coefficient):
            metrics["leyden/updates_skipped"] = 1.0
            return batch
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.ppo_mini_batch_size = len(batch) // settings.updates_per_step
        return super()._update_actor(batch, metrics)

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        folder = Path(self.config.trainer.default_local_dir)
        complete(folder / f"global_step_{self.global_steps}", self.global_steps)
        prune(folder, keep=self.settings.keep_checkpoints)

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        self.agent_loop_manager.report(global_steps, metrics, timing_raw)
