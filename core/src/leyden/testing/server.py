"""A fake OpenAI-compatible model server for tests: deterministic like a greedy engine, and as talkative as vLLM.

    with FakeModelServer() as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")

Token ids are the server's own (`token_ids`, `prompt_ids`), so a test can say which ids a recorded call must have. The
chat template is append-only: a conversation's next prompt begins with its last prompt and answer. Attributes may be
changed between requests; every request is kept in `requests`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from leyden.testing import answers
from leyden.testing.answers import EOS, logprob, prompt_ids, token_id, token_ids, tokens

__all__ = ["EOS", "FakeModelServer", "ModelRequest", "logprob", "prompt_ids", "token_id", "token_ids", "tokens"]


@dataclass(frozen=True)
class ModelRequest:
    """One request as it reached the server. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    status: int = 200


@dataclass
class FakeModelServer:
    """The server; use it as a context manager. It listens on a free port of 127.0.0.1."""

    reply: Callable[[dict[str, Any]], answers.Reply] = answers.default_reply
    """Request body → answer. The default calls the first tool, fills a JSON schema, or says how long the talk is."""
    return_token_ids: bool = True
    """Whether `return_token_ids` is honoured; False is a server that does not know it."""
    return_logprobs: bool = True
    """Whether `logprobs` is honoured."""
    drop_streamed_tool_ids: bool = False
    """Whether streamed tool calls lack their token ids, as in vllm-project/vllm issue 27482."""
    context_length: int = 100_000
    """Longest prompt in tokens; a longer one is answered with 400."""
    fail_first: int = 0
    """How many of the next requests are answered with 500."""
    break_stream_after: int | None = None
    """Chunks after which a streamed answer is cut off by closing the connection."""
    hold: threading.Event | None = None
    """While set to an event that is not set, no answer is sent (a slow server that a test can release)."""
    hold_chunk: threading.Event | None = None
    """The same between the first chunk of a stream and the rest."""
    delay_s: float = 0.0
    """Seconds before every answer."""
    name: str = ""
    """Put before the ids that the server makes, of answers and tool calls, so that no two servers of one test make the same."""
    response_id: str | None = None
    """The same id for every answer, as a caching server gives; None makes a new one each time."""
    requests: list[ModelRequest] = field(default_factory=list)
    received: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for each request that arrived, so that a test can wait for one."""

    def __enter__(self) -> FakeModelServer:
        self._lock = threading.Lock()
        self._count = 0
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for event in (self.hold, self.hold_chunk):
            if event is not None:
                event.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def origin(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as `base_url`: the origin and `/v1`."""
        return self.origin + "/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of the answered requests (status 200), in the order of arrival."""
        return [request.body for request in self.requests if request.status == 200]

    def take_failure(self) -> bool:
        """Whether the next answer is to be a 500; counts `fail_first` down."""
        with self._lock:
            failing = self.fail_first > 0
            self.fail_first -= failing
            return failing

    def next_id(self, prefix: str) -> str:
        """A new response id."""
        with self._lock:
            self._count += 1
            return self.response_id or f"{self.name}{prefix}-{self._count}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    fake: FakeModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""

    def do_GET(self) -> None:
        self._record("GET", {}, 200)
        if self.path == "/health":
            self._send(200, {})
        elif self.path.endswith("/models"):
            self._send(200, {"object": "list", "data": [{"id": "policy", "object": "model", "created": 1}]})
        else:
            self._send(404, _error(f"no such path: {self.path}", 404))

    def do_POST(self) -> None:
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        failing = fake.take_failure()
        prompt = prompt_ids(answers.conversation(path, body))
        too_long = len(prompt) > fake.context_length
        known = path.endswith(("/chat/completions", "/responses", "/completions"))
        self._record("POST", body, 500 if failing else 404 if not known else 400 if too_long else 200)
        if fake.hold is not None:
            fake.hold.wait(30)
        if fake.delay_s:
            time.sleep(fake.delay_s)
        if failing:
            self._send(500, _error("the server failed as it was told to", 500))
        elif not known:
            self._send(404, _error(f"no such path: {path}", 404))
        elif too_long:
            text = (
                f"This model's maximum context length is {fake.context_length} tokens. However, your request has "
                f"{len(prompt)} input tokens. Please reduce the length of the input messages."
            )
            self._send(400, _error(text, 400))
        elif path.endswith("/responses"):
            self._send(200, answers.response_object(fake.next_id("resp"), body, fake.reply(body)))
        elif path.endswith("/chat/completions"):
            self._chat(fake, body, prompt)
        else:
            self._send(200, answers.text_completion(fake.next_id("cmpl"), body, fake.reply(body)))

    def _record(self, method: str, body: dict[str, Any], status: int) -> None:
        fake = self.server.fake
        headers = {name.lower(): value for name, value in self.headers.items()}
        fake.requests.append(ModelRequest(method, self.path, headers, body, status))
        fake.received.release()

    def _chat(self, fake: FakeModelServer, body: dict[str, Any], prompt: tuple[int, ...]) -> None:
        answer = answers.Answer.make(
            fake.next_id("chatcmpl"),
            body,
            fake.reply(body),
            prompt=prompt,
            with_ids=fake.return_token_ids and bool(body.get("return_token_ids")),
            with_logprobs=fake.return_logprobs and bool(body.get("logprobs")),
        )
        if not body.get("stream"):
            self._send(200, answer.plain(), {"x-request-id": answer.id})
            return
        include_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._stream(answer.chunks(include_usage=include_usage, drop_tool_ids=fake.drop_streamed_tool_ids))

    def _stream(self, chunks: Iterator[dict[str, Any]]) -> None:
        fake = self.server.fake
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(chunks):
            if number == fake.break_stream_after:
                self.close_connection = True
                self.wfile.flush()
                return
            self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            if number == 0 and fake.hold_chunk is not None:
                fake.hold_chunk.wait(30)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _error(text: str, code: int) -> dict[str, Any]:
    return {"error": {"message": text, "type": "BadRequestError" if code == 400 else "server_error", "code": code}}
