"""Lets the tests import their helpers (`running`), whatever the import mode is, and takes out what `train` instrumented."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and the programs that tests send it to would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_hooks_are_left() -> Iterator[None]:
    yield
    if "opentelemetry.instrumentation.threading" in sys.modules:
        import leyden

        leyden.uninstrument()
