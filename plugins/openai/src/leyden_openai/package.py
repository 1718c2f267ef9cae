"""Which versions of the openai SDK are supported: the one place, read by the test runner and the README's table."""

from __future__ import annotations

SUPPORTED = ("openai>=1.40,<4",)
