"""Parts of conformance apps in LangChain's family: models, tools, asking an agent with a tool. For tests only.

Needs langchain-openai.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from leyden.testing.adapter import ModelAccess, lookup


class Answer(BaseModel):
    """The answer."""

    colour: str
    count: int


class Foreign(BaseChatModel):
    """A model of another protocol, which must never be called."""

    @property
    def _llm_type(self) -> str:
        return "foreign"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the model of another protocol was called")

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[_as_anthropic(one) for one in tools], **kwargs)


def _as_anthropic(one: Any) -> dict[str, Any]:
    function = convert_to_openai_tool(one)["function"]
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


def chat(model: ModelAccess, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=model.base_url,
        api_key=model.api_key,  # type: ignore[arg-type]
        model=model.model,
        timeout=model.timeout_s,
        max_retries=model.max_retries,
        **more,
    )


def lookup_tool() -> BaseTool:
    return tool(lookup)


def asked(instructions: str, question: str) -> list[BaseMessage]:
    return [SystemMessage(instructions), HumanMessage(question)]


async def with_tools(model: Any, tools: list[BaseTool], messages: list[BaseMessage]) -> list[BaseMessage]:
    """Ask until no tool is called; returns the conversation."""
    able = model.bind_tools(tools)
    messages = list(messages)
    by_name = {one.name: one for one in tools}
    while True:
        answer: AIMessage = await able.ainvoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return messages
        for call in answer.tool_calls:
            result = await by_name[call["name"]].ainvoke(call["args"])
            messages.append(ToolMessage(str(result), tool_call_id=call["id"]))
