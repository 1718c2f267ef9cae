"""The stand-in for a marked agent's model: the SDK's own chat-completions model on the policy's endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from agents import FunctionTool, OpenAIChatCompletionsModel
from agents.exceptions import UserError
from openai import AsyncOpenAI

from leyden.binding import refuse
from leyden.errors import RoutingError
from leyden.types import Endpoint
from leyden_openai_agents.clients import Clients
from leyden_openai_agents.turns import history_is_on_the_server

SERVER_STATE = (
    "its conversation is kept on OpenAI's server (previous_response_id, auto_previous_response_id or conversation_id), which "
    "the policy's server does not have. Pass the history along instead (result.to_input_list(), or a session such as "
    "SQLiteSession), or take the mark off it"
)
PROMPT = (
    "its instructions are a prompt that is kept on OpenAI's server (Agent(prompt=...)). Write them as "
    "Agent(instructions=...), or take the mark off it"
)
HOSTED = (
    "its tool {0!r} runs on OpenAI's server, and chat completions know function tools alone. Give it a function tool instead "
    "(or, as a tool, an agent that has the hosted tool and no mark), or take the mark off it"
)
UNKNOWN = (
    "the SDK cannot write this conversation as chat completions: {0}. Keep such items from it (in a handoff: "
    "input_filter=agents.extensions.handoff_filters.remove_all_tools), or take the mark off it"
)


class PolicyModel(OpenAIChatCompletionsModel):
    """Called with what the agent's own model would be called with; the same content goes to the policy's endpoint.

    Time-out and retries are those of the own model's `openai` client where it has one. Raises `RoutingError` for what
    chat completions cannot say.
    """

    def __init__(self, own: object, endpoint: Endpoint) -> None:
        self._clients = Clients(own, endpoint)
        self._kind = type(own)  # not the object: the SDK makes a new one for every turn, and lets go of it
        super().__init__(model=endpoint.model, openai_client=self._clients.current())

    @property
    def _client(self) -> AsyncOpenAI:
        """The client of the running event loop."""
        return self._clients.current()

    @_client.setter
    def _client(self, given: AsyncOpenAI) -> None:
        """Set by the SDK's constructor to what `_client` gives anyway."""

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        previous_response_id: Any = None,
        conversation_id: Any = None,
        prompt: Any = None,
        **more: Any,
    ) -> Any:
        """The answer of the policy."""
        self._check(tools, previous_response_id or conversation_id, prompt)
        given = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        try:
            return await super().get_response(*given, **more)
        except UserError as error:
            raise self._refused(UNKNOWN.format(error)) from error

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        previous_response_id: Any = None,
        conversation_id: Any = None,
        prompt: Any = None,
        **more: Any,
    ) -> AsyncIterator[Any]:
        """The answer of the policy, streamed."""
        self._check(tools, previous_response_id or conversation_id, prompt)
        given = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        try:
            stream: Any = super().stream_response(*given, **more)
            async with aclosing(stream) as events:
                async for event in events:
                    yield event
        except UserError as error:
            raise self._refused(UNKNOWN.format(error)) from error

    def _check(self, tools: Any, server_state: object, prompt: object) -> None:
        if server_state or history_is_on_the_server():
            raise self._refused(SERVER_STATE)
        if prompt is not None:
            raise self._refused(PROMPT)
        for tool in tools:
            if not isinstance(tool, FunctionTool):
                raise self._refused(HOSTED.format(tool.name))

    def _refused(self, why: str) -> RoutingError:
        return refuse(self._kind, why)
