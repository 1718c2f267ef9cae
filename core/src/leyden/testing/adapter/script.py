"""The scripted model of the conformance suite: what the fake server says to the two agents, whatever the framework sends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from leyden.testing.adapter.app import PLANNER, WRITER, AgentApp
from leyden.testing.answers import Reply, sample, text_of

_WORD = re.compile(r"word-\d+")
_MARKERS = {"planner": PLANNER, "writer": WRITER}


def role_of(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """Whose instructions a conversation begins with: "planner", "writer", or None for neither."""
    text = "\n".join(_shown(message) for message in messages)
    places = {role: text.find(marker) for role, marker in _MARKERS.items()}
    found = {role: place for role, place in places.items() if place >= 0}
    return min(found, key=lambda role: found[role]) if found else None


def words_in(text: str) -> set[str]:
    """The words that are asked for (`word-17`) in a text."""
    return set(_WORD.findall(text))


def scripted(app: AgentApp, body: dict[str, Any]) -> Reply:
    """The model's answer: a tool that was not called yet is called, a schema is filled, else one line is said."""
    given = app.reply(body)
    if given is not None:
        return given
    messages = body.get("messages") or []
    role = role_of(messages)
    word = next(iter(re.findall(_WORD, "\n".join(_shown(message) for message in messages))), "word-0")
    if tool := _next_tool(body, messages, role):
        return {"tool_calls": [{"name": tool["name"], "arguments": _arguments(tool.get("parameters") or {}, word)}]}
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(sample(wanted["json_schema"]["schema"]))
    return {"planner": f"Plan: look up {word}.", "writer": f"Answer: {word} is warm."}.get(
        role or "", f"Said of {word}."
    )


def _shown(message: Mapping[str, Any]) -> str:
    return text_of(message)


def _next_tool(body: dict[str, Any], messages: list[dict[str, Any]], role: str | None) -> dict[str, Any] | None:
    """The tool to call now, by the agent's preference; None where each was called already."""
    if body.get("tool_choice") == "none":
        return None
    called = {call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    tools = [tool["function"] for tool in body.get("tools") or () if "function" in tool]
    liked = {"planner": "writer", "writer": "lookup"}.get(role or "", "")
    tools.sort(key=lambda tool: not (liked and liked in tool["name"].lower()))
    return next((tool for tool in tools if tool["name"] not in called), None)


def _arguments(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    """Arguments for a tool: the word where one is asked for, a coworker's name, else what to do in words."""
    found: dict[str, Any] = {}
    for name, part in (schema.get("properties") or {}).items():
        text = part.get("type", "string") == "string" and "enum" not in part
        if not text:
            found[name] = sample(part)
        elif name == "coworker":
            found[name] = "writer"
        else:
            found[name] = word if name == "word" else f"Tell me of {word}."
    return found
