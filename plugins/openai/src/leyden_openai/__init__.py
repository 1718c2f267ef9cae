"""The openai SDK's adapter for Leyden: routes and captures the LLM calls of everything that is built on it."""

from __future__ import annotations

from leyden_openai.adapter import Adapter

__version__ = "0.1.0"

adapter = Adapter()

__all__ = ["Adapter", "adapter"]
