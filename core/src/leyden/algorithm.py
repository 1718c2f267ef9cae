"""The algorithm slot: anything that publishes resources, asks for rollouts and learns from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from leyden.episode import Episode
from leyden.types import Mark, Mode, Policy, Resources


class TrainingRun(Protocol):
    """What an algorithm is given. `leyden.train` implements it over a store; tests may implement it over anything."""

    directory: Path
    """Folder of this run: checkpoints, trained policies, metrics. It exists."""
    seed: int
    tasks: Sequence[Any]
    val_tasks: Mapping[str, Sequence[Any]]
    """Held-out sets by name ("val" is the first one given); empty where there is none."""
    marks: tuple[Mark, ...]
    resumed: bool
    """Whether the run goes on from `directory` instead of starting anew."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that the marks name, in the order of the marks."""
        ...

    async def publish(self, policies: Mapping[str, Policy], values: Mapping[str, Any] | None = None) -> Resources:
        """Publish a new version of the resources, with the run's marks."""
        ...

    async def rollout(
        self,
        tasks: Sequence[Any],
        *,
        n: int = 1,
        mode: Mode = "train",
        resources: Resources | None = None,
        timeout_s: float | None = None,
    ) -> list[Episode]:
        """Run the agent `n` times on each task and wait for all of it.

        Returns `len(tasks) * n` episodes, those of one task next to each other and with one `group`, failed ones
        included. Raises `RolloutsFailed` (with the reasons) if not one of them succeeded.
        """
        ...

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record metrics of a step (names like `train/reward`) to the console, `metrics.jsonl` and the progress line."""
        ...

    def progress(self, step: int, total: int) -> None:
        """Say how far the run is, for the progress line and its time left."""
        ...

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Write the algorithm's own small state (JSON) atomically; it survives a kill."""
        ...

    def load_state(self) -> dict[str, Any] | None:
        """The state of the last `save_state` of a resumed run, or None."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """An algorithm. Two more methods are used where they exist: `check(run)`, called before anything is started, raises
    a `LeydenError` for settings or tasks that cannot work; `summary() -> Mapping[str, Any]` adds to the final report."""

    async def run(self, run: TrainingRun) -> None:
        """Learn; returns when done."""
        ...
