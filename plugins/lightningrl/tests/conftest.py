"""Tiny models for the tests that need weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# verl chooses its platform when it is first imported, so before any test.
os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama, output layer of its own."""
    from leyden_lightningrl.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with tied embeddings."""
    from leyden_lightningrl.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tied"), tied=True, seed=1)
