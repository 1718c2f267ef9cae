"""The example's modules on the path, and a fake of the language model server that they call."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


class FakeModels:
    """Answers chat completions by the system message, and keeps the requests."""

    def __init__(self) -> None:
        self.replies = {"Name what is counted.": "How many cups"}
        self.requests: list[dict[str, Any]] = []

    def reply(self, request: dict[str, Any]) -> str:
        self.requests.append(request)
        return self.replies[request["messages"][0]["content"]]

    def write(self, text: str) -> None:
        """What the writer shall reply."""
        self.replies["Write the calculator expression for the question."] = text


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, FakeModels]]:
    """The URL of a running server, and what it answers with."""
    models = FakeModels()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": models.reply(request)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            kind = "chat.completion"
            body = {"id": "c", "object": kind, "created": 0, "model": "m", "choices": [choice], "usage": usage}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}/v1", models
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture(scope="session")
def agent(server: tuple[str, FakeModels]) -> Iterator[ModuleType]:
    """The agent's module, its endpoint the fake server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BASE_URL", server[0])
        patch.setenv("BASE_MODEL", "base")
        yield importlib.import_module("agent")


@pytest.fixture
def models(server: tuple[str, FakeModels]) -> FakeModels:
    """The fake models, with no request yet."""
    server[1].requests.clear()
    return server[1]
