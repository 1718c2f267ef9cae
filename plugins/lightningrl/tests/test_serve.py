"""`python -m leyden_lightningrl.serve`: what is wrong is one line on standard error, before a server is started."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leyden_lightningrl import serve
from leyden_lightningrl.verl.cpu import server


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


def test_a_server_that_ends_by_itself_ends_the_command(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers_once = (
        "import http.server, sys\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).handle_request()\n"
        "print('out of memory', flush=True); sys.exit(7)\n"
    )
    monkeypatch.setattr(server, "server_command", lambda _, port, **__: [sys.executable, "-c", answers_once, str(port)])
    assert serve.main([model, "--port", "0"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("serving ")
    assert err.startswith("error: the vLLM server ended with status 7.")
    assert "out of memory" in err


def test_a_folder_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main([str(tmp_path / "none")]) == 2
    assert "there is no model folder" in capsys.readouterr().err


def test_a_tool_parser_is_told_to_vllm_and_nothing_without_one() -> None:
    assert serve.tool_arguments(None) == []
    assert serve.tool_arguments("hermes") == ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
