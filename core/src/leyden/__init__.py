"""Leyden: train the LLM agents you already have."""

from __future__ import annotations

from leyden.agents import agent, declare
from leyden.algorithm import Algorithm, TrainingRun
from leyden.emit import emit_exception, emit_message, emit_object, emit_reward, span
from leyden.episode import Episode
from leyden.errors import LeydenError
from leyden.hookspecs import hookimpl
from leyden.marks import trainable
from leyden.plugins import instrument, uninstrument
from leyden.store import LightningStore
from leyden.types import Endpoint, Mark, Prompt, Resources, Reward, Rollout, Span

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
    "TrainingRun",
    "agent",
    "declare",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "hookimpl",
    "instrument",
    "span",
    "trainable",
    "uninstrument",
]
