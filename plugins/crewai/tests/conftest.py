from __future__ import annotations

import os
import tempfile

# Before CrewAI is imported: no telemetry, no question on the terminal, no files in the working directory; and no list of
# certificate authorities, which each client would take 0.1 s to read, for servers that speak plain HTTP.
os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_TRACING_ENABLED="false",
    CREWAI_TESTING="true",
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(prefix="leyden-crewai-"),
    SSL_CERT_DIR=tempfile.mkdtemp(prefix="leyden-crewai-"),
    OPENAI_API_KEY="no-key",
)

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """CrewAI and what it imports warn of themselves, and CrewAI never closes its clients."""
    for warning in (
        "DeprecationWarning",
        "ImportWarning",
        "ResourceWarning",
        "pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"ignore::{warning}")
