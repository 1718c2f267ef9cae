"""The supported versions of CrewAI: the one place, read by nox, the README's table and the version check."""

from __future__ import annotations

FRAMEWORK = "crewai"
IMPORTS = ("crewai",)
SUPPORTED = ("crewai>=1.10,<2",)
"""PEP 508; the tests run with the lower bound and with the newest release."""
