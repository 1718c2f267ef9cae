"""Marked agents whose model is not chat completions are moved there, content unchanged; what cannot be moved says so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    WebSearchTool,
    function_tool,
    set_default_openai_client,
)
from agents.models.openai_responses import OpenAIResponsesWSModel
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

import leyden
from leyden import binding
from leyden.errors import RoutingError
from leyden.testing.recording import RecordedAttempt, recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden.types import Endpoint, Prompt
from leyden_openai_agents import clients
from leyden_openai_agents.stand_in import PolicyModel

Attempt = Callable[..., AbstractContextManager[RecordedAttempt]]

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("instrumented")]


class Note(BaseModel):
    colour: str
    count: int


class Foreign(Model):
    """A model of the SDK's interface that speaks some other protocol."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise AssertionError("the agent's own model was called")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise AssertionError("the agent's own model was called")


@function_tool
def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word} is warm"


async def streamed(agent: Agent, question: Any, **given: Any) -> Any:
    run = Runner.run_streamed(agent, question, **given)
    async for _ in run.stream_events():
        pass
    return run


@pytest.fixture(params=[Runner.run, streamed], ids=["plain", "streamed"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both ways to run an agent in a running event loop."""
    way: Callable[..., Any] = request.param
    return way


@pytest.fixture(params=["responses", "by name", "websocket", "foreign"])
def model(request: pytest.FixtureRequest, client: AsyncOpenAI) -> Any:
    """The models that are not chat completions."""
    set_default_openai_client(client)
    made: dict[str, Callable[[], Any]] = {
        "responses": lambda: OpenAIResponsesModel("own", client),
        "by name": lambda: "own",
        "websocket": lambda: OpenAIResponsesWSModel("own", client),
        "foreign": Foreign,
    }
    return made[request.param]()


SETTINGS = ModelSettings(
    temperature=0.25,
    top_p=0.5,
    max_tokens=99,
    tool_choice="auto",
    parallel_tool_calls=False,
    reasoning=Reasoning(effort="low"),
    extra_body={"top_k": 7},
)


@pytest.mark.parametrize("more", [{"tools": [lookup]}, {"output_type": Note}], ids=["tools", "schema"])
async def test_the_policy_is_asked_what_chat_completions_would_be_asked(
    run: Any,
    model: Any,
    more: dict[str, Any],
    chat: OpenAIChatCompletionsModel,
    provider: FakeModelServer,
    policy_server: FakeModelServer,
    attempt: Attempt,
) -> None:
    given = {"name": "writer", "instructions": "Be brief.", "model_settings": SETTINGS, **more}
    with attempt("writer"):
        expected = await run(Agent(model=chat, **given), "hi")
    bodies = [*policy_server.bodies]
    policy_server.requests.clear()
    with attempt("writer") as recorded:
        result = await run(Agent(model=model, **given), "hi")

    def content(body: dict[str, Any]) -> dict[str, Any]:
        return {key: value if key != "messages" else _without_ids(value) for key, value in body.items()}

    assert [content(body) for body in policy_server.bodies] == [content(body) for body in bodies]
    assert bodies[0]["temperature"] == 0.25
    assert bodies[0]["top_k"] == 7
    assert str(result.final_output) == str(expected.final_output)
    assert not provider.requests
    assert not recorded.scope.failures
    calls = recorded.calls
    assert len(calls) == len(bodies)
    assert all(call.policy == "default" and call.sampled_ids and call.logprobs and not call.hole for call in calls)


def _without_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the ids of tool calls, which the server makes anew."""
    return [
        {
            **{key: value for key, value in message.items() if key != "tool_call_id"},
            "tool_calls": [call["function"] for call in message.get("tool_calls") or ()],
        }
        for message in messages
    ]


async def test_unmarked_agents_stay_where_they_are(
    responses: OpenAIResponsesModel, provider: FakeModelServer, policy_server: FakeModelServer, attempt: Attempt
) -> None:
    agent = Agent(name="planner", instructions="Plan.", model=responses, tools=[WebSearchTool()])
    leyden.uninstrument()
    bare = (await Runner.run(agent, "hi")).final_output
    leyden.instrument()
    with attempt("writer") as recorded:
        assert (await Runner.run(agent, "hi")).final_output == bare
    first, second = provider.requests
    assert first.path == second.path == "/v1/responses"
    assert first.body == second.body
    assert not policy_server.requests
    assert [(span.agent, span.call.policy) for span in recorded.llm if span.call] == [("planner", None)]


async def test_marked_and_unmarked_agents_hand_over_to_each_other(
    run: Any,
    responses: OpenAIResponsesModel,
    provider: FakeModelServer,
    policy_server: FakeModelServer,
    attempt: Attempt,
) -> None:
    reader = Agent(name="reader", instructions="Read.", model=responses)
    writer = Agent(name="writer", instructions="Write.", model=responses, handoffs=[reader])
    with attempt("writer") as recorded:
        result = await Runner.run(writer, "hi")
    assert result.last_agent is reader
    assert [span.agent for span in recorded.llm] == ["writer", "reader"]
    (sent,) = provider.requests
    assert sent.path == "/v1/responses"
    items = [item.get("type", item.get("role")) for item in sent.body["input"]]
    assert items == ["user", "function_call", "function_call_output"]
    assert "fake" not in str(sent.body["input"])


async def test_the_model_of_the_run_is_moved_too(run: Any, policy_server: FakeModelServer, attempt: Attempt) -> None:
    with attempt("writer"):
        await run(Agent(name="writer"), "hi", run_config=RunConfig(model=Foreign()))
    (body,) = policy_server.bodies
    assert body["model"] == "policy"


async def test_a_prompt_is_put_into_responses_calls(responses: OpenAIResponsesModel, provider: FakeModelServer) -> None:
    policies = {"default": Prompt(text="Be kind.", version=1)}
    with recorded_attempt(policies, {"writer": "default"}) as recorded:
        await Runner.run(Agent(name="writer", instructions="Be brief.", model=responses), "hi")
    (sent,) = provider.requests
    assert (sent.path, sent.body["instructions"]) == ("/v1/responses", "Be kind.")
    assert not recorded.scope.failures


async def test_a_policy_that_was_not_published_fails_loudly(
    run: Any, responses: OpenAIResponsesModel, provider: FakeModelServer
) -> None:
    unpublished = pytest.raises(RoutingError, match="must publish it first")
    with recorded_attempt({}, {"writer": "default"}) as recorded, unpublished as caught:
        await run(Agent(name="writer", model=responses), "hi")
    assert recorded.scope.failures == [caught.value]
    assert not provider.requests


async def test_time_out_and_retries_are_those_of_the_agents_client(
    provider: FakeModelServer, policy_server: FakeModelServer, endpoint: Endpoint, attempt: Attempt
) -> None:
    policy_server.fail_first = 1
    async with AsyncOpenAI(base_url=provider.base_url, api_key="secret", max_retries=1, timeout=21) as own:
        model = OpenAIResponsesModel("own", own)
        with attempt("writer") as recorded:
            await Runner.run(Agent(name="writer", model=model), "hi")
        assert [request.status for request in policy_server.requests] == [500, 200]
        assert [call.retries for call in recorded.calls] == [1]
        assert PolicyModel(model, endpoint)._client.timeout == 21


async def test_many_turns_leave_one_client_and_no_model_behind(client: AsyncOpenAI, attempt: Attempt) -> None:
    """The SDK makes a new model object for every turn of an agent that names its model by text."""
    set_default_openai_client(client)
    agent = Agent(name="writer", model="own", tools=[lookup])
    gc.collect()
    before = len(binding._made)
    with attempt("writer") as recorded:
        await asyncio.gather(*(Runner.run(agent, "hi") for _ in range(20)))
    gc.collect()
    assert len(recorded.calls) == 40
    assert len(binding._made) == before
    assert len(clients._clients[asyncio.get_running_loop()]) == 1


async def test_every_event_loop_has_connections_of_its_own(attempt: Attempt) -> None:
    agent = Agent(name="writer", model=Foreign())

    async def once() -> str:
        try:
            return str((await Runner.run(agent, "hi")).final_output)
        finally:
            await clients.close()

    with attempt("writer") as recorded:
        answers = [await asyncio.to_thread(lambda: asyncio.run(once())) for _ in range(3)]
    assert answers == ["answer of policy to 1 messages"] * 3
    assert len(recorded.calls) == 3
    assert not any(loop is not None and loop.is_closed() for loop in clients._clients)


SERVER_SIDE: dict[str, tuple[dict[str, Any], dict[str, Any], Any, str]] = {
    "previous response": ({}, {"previous_response_id": "resp_1"}, "hi", r"kept on OpenAI's server .*to_input_list"),
    "automatic": ({}, {"auto_previous_response_id": True}, "hi", r"kept on OpenAI's server .*to_input_list"),
    "conversation": ({}, {"conversation_id": "conv_1"}, "hi", r"kept on OpenAI's server .*to_input_list"),
    "prompt": ({"prompt": {"id": "p1"}}, {}, "hi", r"prompt that is kept .*instructions="),
    "hosted tool": ({"tools": [WebSearchTool()]}, {}, "hi", r"'web_search.*' runs on OpenAI's server"),
    "hosted history": (
        {},
        {},
        [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"role": "user", "content": "hi"}],
        r"cannot write this conversation .*remove_all_tools",
    ),
}


@pytest.mark.parametrize("case", SERVER_SIDE)
async def test_what_cannot_be_moved_says_what_to_do(
    run: Any,
    case: str,
    client: AsyncOpenAI,
    provider: FakeModelServer,
    policy_server: FakeModelServer,
    attempt: Attempt,
) -> None:
    more, options, question, said = SERVER_SIDE[case]
    set_default_openai_client(client)
    agent = Agent(name="writer", instructions="Be brief.", model="own", **more)
    with attempt("writer") as recorded, pytest.raises(RoutingError, match=said) as caught:
        await run(agent, question, **options)
    assert recorded.scope.failures == [caught.value]
    assert "agent 'writer' is marked" in str(caught.value)
    assert "OpenAIResponsesModel" in str(caught.value)
    assert "take the mark off" in str(caught.value)
    assert not policy_server.requests
    assert not provider.requests


async def test_a_server_kept_conversation_concerns_only_its_own_agents(
    responses: OpenAIResponsesModel, chat: OpenAIChatCompletionsModel, policy_server: FakeModelServer, attempt: Attempt
) -> None:
    """A marked agent as a tool has a conversation of its own, which is not on the server."""
    writer = Agent(name="writer", model=responses)
    planner = Agent(name="planner", model=chat, tools=[writer.as_tool("ask_writer", "Ask.")])
    with attempt("planner/writer") as recorded:
        await Runner.run(planner, "hi", previous_response_id="resp_1")
    assert not recorded.scope.failures
    assert len(policy_server.bodies) == 1
