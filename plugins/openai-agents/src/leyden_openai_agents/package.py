"""The supported versions of the OpenAI Agents SDK: the one place, read by nox, the README's table and the version check."""

from __future__ import annotations

FRAMEWORK = "openai-agents"
IMPORTS = ("agents",)
SUPPORTED = ("openai-agents>=0.10,<1",)
"""PEP 508; the tests run with the lower bound and with the newest release."""
