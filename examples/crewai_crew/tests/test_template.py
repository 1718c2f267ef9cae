"""The chat template: a message in ChatML passes as it is, anything else is put into ChatML."""

from __future__ import annotations

from pathlib import Path

import jinja2

TEMPLATE = Path(__file__).parents[1] / "chat_template.jinja"


def render(messages: list[dict[str, str]], **more: object) -> str:
    """The text of a conversation, in the way that vLLM renders it."""
    return (
        jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        .from_string(TEMPLATE.read_text())
        .render(messages=messages, **more)
    )


def test_a_conversation_that_crewai_wrote_in_chatml_passes_as_it_is() -> None:
    written = "<|im_start|>system\nSort.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant"
    assert render([{"role": "user", "content": written}], add_generation_prompt=True) == written + "\n"


def test_other_conversations_are_put_into_chatml() -> None:
    messages = [{"role": "system", "content": "Reply."}, {"role": "user", "content": "Hello"}]
    text = "<|im_start|>system\nReply.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    assert render(messages) == text
    assert render(messages, add_generation_prompt=True) == text + "<|im_start|>assistant\n"
