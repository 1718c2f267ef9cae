"""The conformance suite's own promises: nothing of it is dropped in silence, and it can fail."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from leyden.testing.adapter import CAPABILITIES, PLANNER, WRITER, AdapterSuite, AgentApp, ModelAccess
from leyden.testing.adapter.script import role_of, scripted, words_in
from leyden.testing.adapter.tap import Tap
from leyden.testing.server import FakeModelServer, logprob, prompt_ids, token_ids


class App(AgentApp):
    async def run(self, question: str) -> str:
        return question


NOTHING = dict.fromkeys((*CAPABILITIES, "instrumentor"), "a test")


def suite(**members: Any) -> type:
    return type("Suite", (AdapterSuite,), {"plugin": "a", "app": App, "lacks": NOTHING, **members})


def test_an_app_that_says_what_it_lacks_is_taken() -> None:
    assert issubclass(suite(), AdapterSuite)


@pytest.mark.parametrize("value", [None, lambda self: None])
def test_no_test_is_dropped_or_replaced(value: Any) -> None:
    with pytest.raises(TypeError, match="drops or replaces a test"):
        suite(test_a_retry_commits_one_call=value)


@pytest.mark.parametrize("mark", [{"strict": True}, {"reason": "it cannot"}, {"strict": False, "reason": "it cannot"}])
def test_an_override_needs_a_strict_xfail_and_a_reason(mark: dict[str, Any]) -> None:
    def replaced(self: Any) -> None:
        """Fails."""

    with pytest.raises(TypeError, match="drops or replaces a test"):
        suite(test_a_retry_commits_one_call=pytest.mark.xfail(**mark)(replaced))
    assert suite(test_a_retry_commits_one_call=pytest.mark.xfail(strict=True, reason="it cannot")(replaced))


def test_what_the_app_cannot_do_must_be_said() -> None:
    with pytest.raises(TypeError, match="does not implement stream"):
        suite(lacks={name: why for name, why in NOTHING.items() if name != "stream"})
    with pytest.raises(TypeError, match="does not implement stream"):
        suite(lacks={**NOTHING, "stream": ""})
    with pytest.raises(TypeError, match="lacks names speak"):
        suite(lacks={**NOTHING, "speak": "it cannot"})


def test_an_adapter_without_an_instrumentor_says_why() -> None:
    with pytest.raises(TypeError, match="names no instrumentor"):
        suite(lacks={name: why for name, why in NOTHING.items() if name != "instrumentor"})


def test_what_the_app_can_do_must_not_be_denied() -> None:
    class Streaming(App):
        async def stream(self, question: str) -> list[str]:
            return [question]

    with pytest.raises(TypeError, match="lacks names stream, which the app implements"):
        suite(app=Streaming)


def asked(instructions: str, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "system", "content": instructions}, {"role": "user", "content": "Tell me of word-5."}, *more]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


def test_the_script_calls_each_tool_once_the_agents_own_first() -> None:
    app = App(ModelAccess("http://127.0.0.1:9/v1"))
    tools = [tool("other", x={"type": "integer"}), tool("lookup", word={"type": "string"})]
    first = scripted(app, {"messages": asked(WRITER), "tools": tools})
    assert first == {"tool_calls": [{"name": "lookup", "arguments": {"word": "word-5"}}]}
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "lookup", "arguments": "{}"}}]}
    again = scripted(app, {"messages": asked(WRITER, called), "tools": tools})
    assert again == {"tool_calls": [{"name": "other", "arguments": {"x": 3}}]}
    assert scripted(app, {"messages": asked(WRITER, called), "tools": tools[1:]}) == "Answer: word-5 is warm."
    assert scripted(app, {"messages": asked(PLANNER)}) == "Plan: look up word-5."
    assert scripted(app, {"messages": asked("Give it a title.")}) == "Said of word-5."


def test_whose_conversation_it_is() -> None:
    assert role_of(asked(f"{PLANNER} Ask '{WRITER}'")) == "planner"
    assert role_of(asked("Be kind.")) is None
    assert words_in("word-1 and word-23, no words") == {"word-1", "word-23"}


@pytest.mark.parametrize("stream", [False, True])
def test_the_tap_passes_on_and_keeps_what_was_sent(stream: bool) -> None:
    with FakeModelServer(reply=lambda body: "two words") as server, Tap(server.origin) as tap:
        body = {"model": "m", "messages": asked(WRITER), "stream": stream, "return_token_ids": True, "logprobs": True}
        request = urllib.request.Request(
            f"{tap.base_url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
    (exchange,) = tap.exchanges
    assert (exchange.body, exchange.status, exchange.answer) == (body, 200, content)
    prompt, sampled, logprobs = exchange.sent
    assert prompt == prompt_ids(asked(WRITER))
    assert sampled[:2] == token_ids("two words")
    assert logprobs == tuple(logprob(one) for one in sampled)
