from __future__ import annotations

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
