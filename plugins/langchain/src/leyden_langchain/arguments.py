"""Call arguments in other providers' forms, put into those of chat completions: tools, tool choice, structured output.

Pure; nothing is imported that LangChain itself does not need.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)

_SPOKEN = frozenset(
    {
        *("stop", "temperature", "max_tokens", "max_completion_tokens", "top_p", "seed", "n", "presence_penalty"),
        *("frequency_penalty", "logit_bias", "tools", "tool_choice", "parallel_tool_calls", "response_format"),
        *("stream_options", "extra_body", "strict"),
    }
)
"""Call arguments that chat completions know."""
_OF_THE_CALL = frozenset({"config", "input", "callbacks", "tags", "metadata", "run_name", "run_id"})
"""Arguments of LangChain's own methods, which no provider sees."""
_OTHER_NAMES = {"functions": "tools", "stop_sequences": "stop", "max_output_tokens": "max_tokens"}
_GEMINI_TYPES = {1: "string", 2: "number", 3: "integer", 4: "boolean", 5: "array", 6: "object"}
_told: set[str] = set()


def translated(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Call arguments in OpenAI's form; what only another provider knows is left out, and logged once."""
    found = {_OTHER_NAMES.get(name, name): value for name, value in kwargs.items()}
    if "tools" in found:
        found["tools"] = [tool for given in found["tools"] or () for tool in _tools(given)]
    _choose(found)
    _structure(found)
    for name in sorted(found):
        if name not in _SPOKEN and name not in _OF_THE_CALL and name[:3] != "ls_":
            del found[name]
            if name not in _told:
                _told.add(name)
                logger.warning(
                    "the policy's endpoint does not know the argument %r of the model it stands in for; left out", name
                )
    return found


def _tools(given: Any) -> list[dict[str, Any]]:
    """A bound tool in OpenAI's form: of Anthropic and others by LangChain's own converter, of Gemini by its declarations."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    if isinstance(given, Mapping) and "function_declarations" in given:
        return [
            {"type": "function", "function": {key: _schema(part) for key, part in one.items()}}
            for one in given["function_declarations"]
        ]
    tool = convert_to_openai_tool(given)
    if isinstance(given, Mapping) and "strict" in given and "function" in tool:  # Anthropic's; the converter drops it
        tool = {**tool, "function": {**tool["function"], "strict": given["strict"]}}
    return [tool]


def _schema(given: Any) -> Any:
    """A Gemini schema as JSON schema: types in lower case (`"OBJECT"`, or their numbers under `type_`)."""
    if isinstance(given, list):
        return [_schema(part) for part in given]
    if not isinstance(given, Mapping):
        return given
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in ("type", "type_") and isinstance(value, (str, int)):
            found["type"] = _GEMINI_TYPES.get(int(value), "string") if isinstance(value, int) else value.lower()
        else:
            found[key] = _schema(value)
    return found


def _choose(found: dict[str, Any]) -> None:
    """Put the tool choice, and whether tools may be called in parallel, into OpenAI's form."""
    config = found.pop("tool_config", None)
    given = found.pop("tool_choice", None)
    if given is None or given is False:
        given = _plain(config)
    if isinstance(given, Mapping) and given.get("disable_parallel_tool_use"):
        found.setdefault("parallel_tool_calls", False)
    names = [tool.get("function", {}).get("name") for tool in found.get("tools") or ()]
    choice = _tool_choice(given, names)
    if choice is not None:
        found["tool_choice"] = choice


def _plain(config: Any) -> Any:
    """A provider's configuration object as a dictionary."""
    return config.model_dump(mode="json") if hasattr(config, "model_dump") else config


def _tool_choice(given: Any, names: list[str]) -> Any:
    """A tool choice in OpenAI's form.

    Anthropic's is `{"type": "auto" | "any" | "none" | "tool", "name": …}`, Gemini's `{"function_calling_config": {"mode": …,
    "allowed_function_names": […]}}` or those names alone, LangChain's own also a tool's name, or True for the only tool.
    """
    if isinstance(given, Mapping):
        if "function_calling_config" in given:
            calling = given["function_calling_config"] or {}
            mode = str(getattr(calling.get("mode"), "value", calling.get("mode")) or "auto").lower()
            return _tool_choice(calling.get("allowed_function_names") or "any" if mode == "any" else mode, names)
        if given.get("type") == "tool":
            return _named(given["name"])
        return {"any": "required"}.get(kind := str(given.get("type")), given if kind == "function" else kind)
    if isinstance(given, (list, tuple)):
        return _named(given[0]) if len(given) == 1 else "required"
    if given is True:
        return _tool_choice(names, names)
    if given == "any":
        return "required"
    return given if given in (None, "auto", "none", "required") else _named(given)


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _structure(found: dict[str, Any]) -> None:
    """Put the schema that an answer must have into OpenAI's form: from Anthropic's `output_config`, Gemini's schemas."""
    config = found.pop("output_config", None)
    given = found.pop("output_format", None) or (config.get("format") if isinstance(config, Mapping) else None)
    schema = given.get("schema") if isinstance(given, Mapping) else None
    for name in ("response_schema", "response_json_schema"):
        schema = found.pop(name, None) or schema
    mime = found.pop("response_mime_type", None)
    if isinstance(schema, Mapping):
        name = str(schema.get("title") or "answer")
        wanted: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": name, "schema": _schema(schema)}}
        found.setdefault("response_format", wanted)
    elif mime == "application/json":
        found.setdefault("response_format", {"type": "json_object"})
    if found.get("response_format") and found.get(
        "tools"
    ):  # the SDK's `parse` takes no others beside a response format
        strict = [
            {**tool, "function": {**tool["function"], "strict": True}} for tool in found["tools"] if "function" in tool
        ]
        found["tools"] = strict
