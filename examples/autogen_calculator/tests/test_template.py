"""The chat template: what SmolLM2 reads, and what vLLM's parser `pythonic` takes back for a call."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import jinja2

TEMPLATE = Path(__file__).parents[1] / "chat_template.jinja"
TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Work out a sum.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}


def render(messages: list[dict[str, object]], **more: object) -> str:
    """The text of a conversation, with the filters that vLLM's own environment has."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = json.dumps
    return environment.from_string(TEMPLATE.read_text()).render(messages=messages, **more)


def test_tools_calls_and_results_are_told() -> None:
    call = {"type": "function", "function": {"name": "calculate", "arguments": {"expression": "5+4"}}}
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Calculate."},
        {"role": "user", "content": "5 and 4?"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "content": "9", "tool_call_id": "1"},
    ]
    assert render(messages, tools=[TOOL], add_generation_prompt=True) == (
        "<|im_start|>system\nCalculate.\nTools:\ncalculate(expression): Work out a sum.<|im_end|>\n"
        "<|im_start|>user\n5 and 4?<|im_end|>\n"
        '<|im_start|>assistant\n[calculate(expression="5+4"), calculate(expression="5+4")]<|im_end|>\n'
        "<|im_start|>tool\n9<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_conversation_without_tools_is_plain() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
    assert render(messages) == text


def test_a_call_is_written_as_a_python_list_of_calls_whatever_its_arguments() -> None:
    arguments = {"expression": 'a "quoted"\n\\ sum', "digits": 2, "exact": [1.5, "x"]}
    call = {"type": "function", "function": {"name": "calculate", "arguments": arguments}}
    text = render([{"role": "assistant", "content": "", "tool_calls": [call]}])
    written = text.removeprefix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")
    body = ast.parse(written, mode="eval").body
    assert isinstance(body, ast.List)
    (node,) = body.elts
    assert isinstance(node, ast.Call)
    assert {part.arg: ast.literal_eval(part.value) for part in node.keywords} == arguments
