"""Leyden: train the LLM agents you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leyden.agents import agent, declare
from leyden.algorithm import Algorithm, TrainingRun
from leyden.emit import emit_exception, emit_message, emit_object, emit_reward, span
from leyden.episode import Episode
from leyden.errors import LeydenError
from leyden.hookspecs import hookimpl
from leyden.marks import trainable
from leyden.plugins import instrument, uninstrument
from leyden.prompts import prompt
from leyden.rollout_function import rollout
from leyden.store import LightningStore
from leyden.types import Endpoint, Mark, Prompt, Resources, Reward, Rollout, Span

if TYPE_CHECKING:
    from leyden.training import TrainingResult, train, train_async

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Endpoint",
    "Episode",
    "LeydenError",
    "LightningStore",
    "Mark",
    "Prompt",
    "Resources",
    "Reward",
    "Rollout",
    "Span",
    "TrainingResult",
    "TrainingRun",
    "agent",
    "declare",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "hookimpl",
    "instrument",
    "prompt",
    "rollout",
    "span",
    "train",
    "train_async",
    "trainable",
    "uninstrument",
]


def __getattr__(name: str) -> Any:
    """`train` brings in the runner and the store; an agent that only emits does not need them."""
    if name in ("TrainingResult", "train", "train_async"):
        from leyden import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
