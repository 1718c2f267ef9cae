"""The rollout manager that verl's `fit()` is given: episodes come from the TrainingRun, rows go to the TransferQueue.

verl runs in a thread of its own and blocks; the TrainingRun lives in the event loop. This object is the bridge.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from leyden.algorithm import TrainingRun
from leyden.episode import Episode
from leyden.errors import RolloutsFailed
from leyden.types import Endpoint, Mode
from leyden_lightningrl.config import Settings
from leyden_lightningrl.rows import Batch, Row, make_batch, validation_metrics
from leyden_lightningrl.verl.cpu.server import PROCESSES

logger = logging.getLogger(__name__)

T = TypeVar("T")

NEUTRAL = {"top_p": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
NEUTRAL_BODY = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling must be from the model's own distribution, or the recorded log-probs are those of another policy."""


TOO_LONG = ("maximum context length", "maximum model length")
"""Parts of what vLLM says of a prompt that does not fit."""


class Stopped(Exception):
    """The run was cancelled; unwinds verl's loop."""


class RolloutManager:
    """`generate_sequences` is verl's contract; `validate`, `report` are called by `LeydenTrainer`."""

    def __init__(self, run: TrainingRun, settings: Settings, *, policy: str, model: str) -> None:
        self.run, self.settings, self.policy, self.model = run, settings, policy, model
        self.loop = asyncio.get_running_loop()
        self.addresses: Sequence[str] = ()
        self.batch = Batch(rows=(), metrics={})
        self.last_metrics: dict[str, float] = {}
        self.unused_rewards = 0
        """Rewards so far that the credit scheme passed over."""
        self.validations: dict[int, dict[str, float]] = {}
        self._rollout_seconds = 0.0
        self._stop = threading.Event()
        self._pending: concurrent.futures.Future[Any] | None = None

    def stop(self) -> None:
        """Make the running call, and every later one, raise `Stopped` in verl's thread."""
        self._stop.set()
        if self._pending is not None:
            self._pending.cancel()

    def check_stopped(self) -> None:
        """Raises `Stopped` once the run is cancelled."""
        if self._stop.is_set():
            raise Stopped

    def generate_sequences(self, prompts: Any) -> None:
        """One training step's rollouts, as rows in the TransferQueue.

        `prompts`: TensorDict with one entry per task: `task` (its number), `uid`; and `global_steps`.
        """
        step = int(prompts["global_steps"])
        entries = [prompts[i] for i in range(len(prompts))]
        tasks = [self.run.tasks[int(entry["task"])] for entry in entries]
        uids = [str(entry["uid"]) for entry in entries]
        started = time.perf_counter()
        episodes = self.await_(self._episodes(tasks, self.settings.group_size, "train", step - 1))
        self._rollout_seconds = time.perf_counter() - started
        self.batch = make_batch(episodes, self.settings, policy=self.policy, version=step - 1)
        self._tell_unused(int(self.batch.metrics["dropped/rewards"]))
        if not self.batch.rows:
            raise RolloutsFailed(nothing_to_learn(step, self.batch.metrics))
        group_size = self.settings.group_size
        uid_of = {episodes[i * group_size].group: uid for i, uid in enumerate(uids)}
        write_rows(self.batch.rows, uid_of, step)

    def _tell_unused(self, count: int) -> None:
        if count and not self.unused_rewards:
            logger.warning(
                'credit="uniform" learns from the last reward of the whole rollout alone; %d others of this step (for an agent, '
                "a span or a response, or replaced by a later one) teach nothing: give credit=<function> to use them",
                count,
            )
        self.unused_rewards += count

    def validate(self, step: int) -> dict[str, float]:
        """Run every held-out set greedily (or at `val_temperature`) with the current weights; returns their metrics."""
        started = time.perf_counter()
        metrics: dict[str, float] = {}
        for name, tasks in self.run.val_tasks.items():
            episodes = self.await_(self._episodes(tasks, 1, "val", step))
            metrics |= validation_metrics(episodes, name)
        metrics["time/validate"] = time.perf_counter() - started
        self.validations[step] = metrics
        if step == 0:
            self.log(metrics, 0)
        return metrics

    def report(self, step: int, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """Log a finished step: our account of the rollouts, verl's losses, the time of each phase."""
        kept = {
            ours: float(metrics[theirs])
            for ours, theirs in VERL_METRICS.items()
            if isinstance(metrics.get(theirs), int | float)
        }
        times = {ours: float(timing[theirs]) for ours, theirs in VERL_TIMINGS.items() if theirs in timing}
        times["time/rollouts"] = self._rollout_seconds
        extra = {name: float(value) for name, value in metrics.items() if name.startswith(("sync/", "tree/"))}
        self.last_metrics = {**self.batch.metrics, **self.validations.get(step, {}), **kept, **times, **extra}
        self.log(self.last_metrics, step)
        self.loop.call_soon_threadsafe(self.run.progress, step, self.settings.steps)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand metrics to the run, in its own thread. What goes wrong there (a full disk) is raised here."""

        async def work() -> None:
            self.run.log(dict(metrics), step=step)

        self.await_(work())

    def await_(self, work: Awaitable[T]) -> T:
        """Run `work` in the event loop and wait for it here. Raises `Stopped` once the run is cancelled."""

        async def running() -> T:
            return await work

        self._pending = asyncio.run_coroutine_threadsafe(running(), self.loop)
        if self._stop.is_set():
            self._pending.cancel()
        try:
            return self._pending.result()  # type: ignore[no-any-return]
        except concurrent.futures.CancelledError:
            raise Stopped from None
        finally:
            self._pending = None

    async def _episodes(self, tasks: Sequence[Any], n: int, mode: Mode, version: int) -> list[Episode]:
        """Episodes of `tasks` in their order, the tasks dealt out over the rollout servers."""
        temperature = self.settings.temperature if mode == "train" else self.settings.val_temperature
        found: list[list[Episode]] = [[] for _ in tasks]

        async def on_server(index: int, address: str) -> None:
            mine = range(index, len(tasks), len(self.addresses))
            endpoint = Endpoint(
                base_url=f"http://{address}/v1",
                model=self.model,
                version=version,
                sampling={"temperature": temperature, **NEUTRAL},
                extra_body=NEUTRAL_BODY,
            )
            resources = await self.run.publish({self.policy: endpoint})
            try:
                episodes = await self.run.rollout(
                    [tasks[i] for i in mine],
                    n=n,
                    mode=mode,
                    resources=resources,
                    timeout_s=self.settings.rollout_timeout_s,
                )
            except RolloutsFailed as error:
                raise RolloutsFailed(f"{error}{remedy(str(error), self.settings)}{dead_servers()}") from None
            for position, i in enumerate(mine):
                found[i] = episodes[position * n : (position + 1) * n]

        used = list(enumerate(self.addresses))[: len(tasks)]
        await asyncio.gather(*(on_server(index, address) for index, address in used))
        return [episode for group in found for episode in group]


VERL_METRICS = {
    "loss/policy": "actor/pg_loss",
    "loss/kl": "actor/kl_loss",
    "loss/entropy": "actor/entropy_loss",
    "loss/clip_fraction": "actor/pg_clipfrac",
    "loss/ratio_kl": "actor/ppo_kl",
    "loss/gradient_norm": "actor/grad_norm",
    "loss/learning_rate": "actor/lr",
    "train/updates_skipped": "leyden/updates_skipped",
}
VERL_TIMINGS = {
    "time/step": "step",
    "time/update": "update_actor",
    "time/old_logprobs": "old_log_prob",
    "time/reference": "ref",
    "time/sync": "update_weights",
    "time/checkpoint": "save_checkpoint",
}


def remedy(reasons: str, settings: Settings) -> str:
    """What to do about failures whose reasons say that a prompt was too long for the server; else nothing."""
    if not any(text in reasons for text in TOO_LONG):
        return ""
    return (
        f". The server's context is max_prompt_tokens + max_response_tokens = {settings.max_prompt_tokens} + "
        f"{settings.max_response_tokens} tokens: raise max_prompt_tokens, or let the agent send less"
    )


def dead_servers() -> str:
    """A sentence for each of our servers that has ended, with the place of its log."""
    return "".join(
        f". The vLLM server ended with status {process.ended}: {process.log} says why"
        for process in PROCESSES.values()
        if process.ended is not None
    )


def nothing_to_learn(step: int, metrics: Mapping[str, float]) -> str:
    """The message for a step without a single row."""
    reasons = {
        "dropped/rollouts_failed": "failed (see `leyden show` for the reason of each)",
        "dropped/rollouts_without_reward": "got no reward of their own: return a number from the rollout function or "
        "emit_reward(...) without a target",
        "dropped/rollouts_without_calls": "made no call of a marked agent that could be recorded whole (see `leyden report`)",
        "dropped/groups_too_small": "groups had fewer than two usable rollouts",
    }
    parts = [f"{metrics[name]:.0f} {reason}" for name, reason in reasons.items() if metrics.get(name)]
    return f"step {step}: not one of {metrics['train/rollouts']:.0f} rollouts can be trained on: {'; '.join(parts)}"


def write_rows(rows: Sequence[Row], uid_of: Mapping[str, str], step: int) -> None:
    """Put rows into the TransferQueue as verl expects them, then mark every prompt of the step as finished."""
    sessions: dict[str, int] = {}
    counts: dict[str, int] = {}
    keys, fields, tags = [], [], []
    for row in rows:
        uid = uid_of[row.group]
        session = sessions.setdefault(row.rollout, len(sessions))
        index = counts.get(row.rollout, 0)
        counts[row.rollout] = index + 1
        keys.append(f"{uid}_{session}_{index}")
        fields.append(row_fields(row, uid, session, step))
        tags.append(
            {
                "status": "success",
                "prompt_len": len(row.prompt_ids),
                "response_len": len(row.response_ids),
                "seq_len": len(row.prompt_ids) + len(row.response_ids),
                "global_steps": step,
                "min_global_steps": step - 1,
                "max_global_steps": step - 1,
            }
        )
    tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train")
    finished = [{"is_prompt": True, "status": "finished", "global_steps": step} for _ in uid_of]
    tq.kv_batch_put(keys=list(uid_of.values()), tags=finished, partition_id="train")


def row_fields(row: Row, uid: str, session: int, step: int) -> dict[str, Any]:
    """One row in verl's terms. The reward stands on the last token, our advantages travel beside it."""
    prompts, responses = torch.tensor(row.prompt_ids), torch.tensor(row.response_ids)
    ids = torch.cat([prompts, responses])
    mask = torch.tensor(row.mask)
    scores = torch.zeros(len(responses))
    scores[-1] = row.reward
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.tensor(row.logprobs, dtype=torch.float32),
        "rm_scores": scores,
        "leyden_advantages": torch.tensor(row.advantages, dtype=torch.float32),
        "multi_modal_inputs": {},
        "extra_fields": {"reward_extra_info": {}},
        "num_turns": row.turns,
        "uid": uid,
        "session_id": session,
        "global_steps": step,
        "raw_prompt": [{"role": "user", "content": row.group}],
        "data_source": "leyden",
        "reward_model": {"ground_truth": ""},
    }
