"""The fake model server's own promises, as far as no adapter's tests hold them."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from leyden.testing.server import FakeModelServer


def ask(server: FakeModelServer) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    request = urllib.request.Request(
        server.base_url + "/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_two_named_servers_never_make_the_same_ids() -> None:
    with FakeModelServer(name="a-") as first, FakeModelServer(name="b-") as second:
        answers = [ask(first), ask(second)]
    assert [answer["id"] for answer in answers] == ["a-chatcmpl-1", "b-chatcmpl-1"]
    calls = [answer["choices"][0]["message"]["tool_calls"][0]["id"] for answer in answers]
    assert calls == ["call-a-chatcmpl-1-0", "call-b-chatcmpl-1-0"]
