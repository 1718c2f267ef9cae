"""The supported versions of LangGraph: the one place, read by nox, the README's table and the version check."""

from __future__ import annotations

FRAMEWORK = "langgraph"
IMPORTS = ("langgraph",)
SUPPORTED = ("langgraph>=0.6,<2",)
"""PEP 508; the tests run with the lower bound and with the newest release."""
