"""A recording proxy in front of a model server: the bytes that it really sent, to compare recorded calls with."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Exchange:
    """One request and what was answered. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    status: int
    answer: bytes

    @property
    def sent(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        """(prompt ids, sampled ids, log-probs) as the server wrote them, plain or streamed."""
        parts = [json.loads(self.answer)] if not self.body.get("stream") else self._events()
        prompt: list[int] = []
        sampled: list[int] = []
        logprobs: list[float] = []
        for part in parts:
            prompt = part.get("prompt_token_ids") or prompt
            for choice in part.get("choices") or ():
                sampled += choice.get("token_ids") or ()
                content = (choice.get("logprobs") or {}).get("content") or ()
                logprobs += [token["logprob"] for token in content]
        return tuple(prompt), tuple(sampled), tuple(logprobs)

    def _events(self) -> list[dict[str, Any]]:
        lines = [line[5:].strip() for line in self.answer.split(b"\n") if line.startswith(b"data:")]
        return [json.loads(line) for line in lines if line and line != b"[DONE]"]


@dataclass
class Tap:
    """The proxy; use it as a context manager. `origin`: of the server behind it."""

    upstream: str
    exchanges: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> Tap:
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.tap = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        """The proxy's own base URL."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    tap: Tap

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        target = urlsplit(self.server.tap.upstream)
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=120)
        passed = {
            name: value for name, value in headers.items() if name not in ("host", "connection", "content-length")
        }
        try:
            connection.request("POST", self.path, content, passed)
            answer = connection.getresponse()
            parts: list[bytes] = []
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while part := answer.read1(65536):
                parts.append(part)
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                self.wfile.flush()
            body = json.loads(content or b"{}")
            # Kept before the last byte goes out: who has read the answer finds the exchange.
            self.server.tap.exchanges.append(Exchange(self.path, headers, body, answer.status, b"".join(parts)))
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        finally:
            connection.close()
