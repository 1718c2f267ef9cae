"""LightningRL: hierarchical reinforcement learning of a marked policy (arXiv 2508.03680) on verl.

Level one is here: the policy's calls are kept, a rollout's reward is spread over them, advantages are computed once per
rollout, exact prefixes are merged into rows. Level two is verl's: the token-level loss, the optimiser, the workers, the
rollout servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leyden.algorithm import TrainingRun
from leyden.errors import ConfigError, InvalidInput
from leyden_lightningrl import models
from leyden_lightningrl.checkpoints import resume_point
from leyden_lightningrl.config import make_settings

if TYPE_CHECKING:
    from leyden_lightningrl.verl.launch import Plan

T = TypeVar("T")


class LightningRL:
    """The algorithm. Keywords are the fields of `leyden_lightningrl.config.Settings`; an unknown one is a `ConfigError`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = make_settings(settings)
        self._summary: dict[str, Any] = {}

    def check(self, run: TrainingRun) -> None:
        """Raises a `LeydenError` for everything that can be known to fail, before any time is spent."""
        from leyden_lightningrl import environment

        settings = self.settings
        if not run.tasks:
            raise InvalidInput("there are no training tasks")
        if len(run.tasks) < settings.tasks_per_step:
            raise ConfigError(
                f"tasks_per_step={settings.tasks_per_step}, but there are only {len(run.tasks)} training tasks; "
                f"set tasks_per_step={len(run.tasks)} or less"
            )
        if len(run.policies) != 1:
            raise ConfigError(
                f"LightningRL trains one policy, the marks name {len(run.policies)}: {', '.join(run.policies) or 'none'}; "
                "mark all agents that are to learn for the same policy"
            )
        folder = models.model_folder(settings.model)
        if folder is not None:
            config = models.check_model(folder)
            models.check_context(config, settings.context, folder)
            if settings.prefix_tree and self._device() == "cpu":
                models.check_prefix_tree(config, settings.context)
        environment.require(self._device())
        self._plan(run, folder or Path(settings.model))

    async def run(self, run: TrainingRun) -> None:
        """Train the policy of the marks; the result is in `run.directory / "policy"`."""
        self.check(run)
        folder = models.model_folder(self.settings.model)
        if folder is None:
            folder = await asyncio.to_thread(models.download, self.settings.model)
            models.check_model(folder)
        plan = self._plan(run, folder)
        # verl chooses its platform as it is imported, so the environment comes first.
        from leyden_lightningrl.verl import launch

        launch.prepare_environment(plan)
        from leyden_lightningrl.verl.manager import RolloutManager

        served = "policy" if plan.device == "cpu" else str(folder)
        manager = RolloutManager(run, self.settings, policy=run.policies[0], model=served)
        training = in_thread(lambda: launch.train(plan, manager))
        try:
            policy = await asyncio.shield(training)
        except asyncio.CancelledError:
            manager.stop()
            if not manager.addresses:
                in_thread(launch.give_up_starting)
            await asyncio.wait([training])  # the trainer ends its servers and workers itself
            training.exception()
            raise
        self._summary = {
            "policy": str(policy),
            "serve": f"vllm serve {shlex.quote(str(policy))}",
            "steps": self.settings.steps,
        }
        if manager.unused_rewards:
            self._summary["rewards not learned from"] = (
                f'{manager.unused_rewards} (credit="uniform" takes the last of a rollout)'
            )

    def summary(self) -> Mapping[str, Any]:
        """Where the trained policy is and how to serve it."""
        return self._summary

    def _device(self) -> str:
        """ "cpu" or "cuda"."""
        if self.settings.device != "auto":
            return self.settings.device
        from leyden_lightningrl import environment

        return "cuda" if environment.has_gpu() else "cpu"

    def _plan(self, run: TrainingRun, model: Path) -> Plan:
        """The run's plan; composes verl's configuration once, so that a wrong key is found now."""
        from leyden_lightningrl.verl import launch
        from leyden_lightningrl.verl.config import make_config

        point = resume_point(run.directory, resumed=run.resumed)
        plan = launch.Plan(
            settings=self.settings,
            device=self._device(),
            model=model,
            directory=run.directory,
            tasks=len(run.tasks),
            seed=self.settings.seed if self.settings.seed is not None else run.seed,
            validates=any(run.val_tasks.values()),
            resume_from=None if point is None else point[1],
        )
        make_config(
            self.settings, device=plan.device, model=model, directory=run.directory, tasks=plan.tasks, seed=plan.seed
        )
        return plan


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a daemon thread: unlike one of an executor's, it does not hold up a process that wants to end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def body() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, name="leyden-verl", daemon=True).start()
    return done
