"""`python -m leyden_lightningrl.serve`: what is wrong is one line on standard error, before a server is started."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from leyden_lightningrl import serve


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    return str(tmp_path)


def test_a_port_in_use(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(logs))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert serve.main([model, "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"error: port {port} is in use by another program: choose another one, or 0 for one that is free\n"
    )
    assert not list(logs.iterdir())


def test_a_folder_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main([str(tmp_path / "none")]) == 2
    assert "there is no model folder" in capsys.readouterr().err
