"""The scripted model says what the suite's fake server would say: by its template, and by its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_model import ANY, CALL, make_scripted_model

from leyden.testing.adapter import PLANNER, WRITER, AgentApp, ModelAccess
from leyden.testing.adapter.script import scripted

pytestmark = pytest.mark.heavy


def tool(name: str, **properties: Any) -> dict[str, Any]:
    shape = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": shape}}


TEXT = {"type": "string"}
LOOKUP = tool("lookup", word=TEXT)
ASK = tool("Ask Writer", task=TEXT, coworker=TEXT, count={"type": "integer"}, how={"enum": ["well", "badly"]})
ASKED = {"role": "user", "content": "Tell me of word-23."}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "lookup", "arguments": {"word": "word-23"}}}],
}
BODIES = {
    "planner": {"messages": [{"role": "system", "content": PLANNER}, ASKED]},
    "writer": {"messages": [{"role": "system", "content": f"Role: {WRITER} Be brief."}, ASKED]},
    "writer of a plan": {"messages": [{"role": "system", "content": f"{WRITER}\n{PLANNER}"}, ASKED]},
    "nobody": {"messages": [ASKED]},
    "no word": {"messages": [{"role": "user", "content": "Hello."}]},
    "tool": {"messages": [{"role": "system", "content": WRITER}, ASKED], "tools": [ASK, LOOKUP]},
    "writer as a tool": {"messages": [{"role": "system", "content": PLANNER}, ASKED], "tools": [LOOKUP, ASK]},
    "tool called": {"messages": [{"role": "system", "content": WRITER}, ASKED, CALLED], "tools": [LOOKUP]},
    "one of two called": {"messages": [{"role": "system", "content": WRITER}, ASKED, CALLED], "tools": [LOOKUP, ASK]},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scripted_model(tmp_path_factory.mktemp("scripted") / "model", letters=5)


def written(reply: Any) -> str:
    """A reply as the model writes it, with `ANY` for letters of its own choice."""
    if isinstance(reply, str):
        return f"{reply} {ANY * 5}"
    (call,) = reply["tool_calls"]
    return f"{CALL[0]}{call['name']}{CALL[1]}{json.dumps(call['arguments'])}{CALL[2]}"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_template_says_what_the_suites_script_says(model: Path, body: dict[str, Any]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    prompt = tokenizer.apply_chat_template(
        body["messages"], tools=body.get("tools"), add_generation_prompt=True, tokenize=False
    )
    script = prompt.split("<|im_start|>script\n")[1].split("<|im_end|>")[0]
    as_sent = json.loads(json.dumps(body))
    for message in as_sent["messages"]:  # vLLM gives the template objects, the wire has text
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    assert script == written(scripted(AgentApp(ModelAccess("")), as_sent))


@pytest.mark.parametrize("length", [0, 3000])
@pytest.mark.parametrize("name", ["tool", "planner"])
def test_the_weights_say_what_the_template_ends_with(model: Path, name: str, length: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    body = BODIES[name]
    messages = [*body["messages"], {"role": "user", "content": "and " * (length // 4)}]
    ids = tokenizer.apply_chat_template(
        messages, tools=body.get("tools"), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        said = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).generate(
            **ids, do_sample=True, temperature=1.0, max_new_tokens=100
        )
    text = tokenizer.decode(said[0, ids["input_ids"].shape[1] :])
    expected = written(scripted(AgentApp(ModelAccess("")), body)).split(ANY)[0]
    assert text.startswith(expected)
    rest = text.removeprefix(expected)
    assert rest.endswith("<|im_end|>")
    letters = rest.removesuffix("<|im_end|>")
    assert len(letters) == (5 if name == "planner" else 0)
    assert all("a" <= letter <= "z" for letter in letters)
