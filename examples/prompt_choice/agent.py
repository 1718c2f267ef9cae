"""Two plain-Python agents on the `openai` client: one answers a sum, the other one says it nicely. `score` is the metric."""

from __future__ import annotations

import functools
import os
from typing import Any

from openai import AsyncOpenAI

import leyden

PROMPTS = (
    "You are a friendly assistant. Explain how you get to the result.",
    "Answer with the number alone.",
)


@functools.cache
def client() -> AsyncOpenAI:
    """The client of all agents, made once in each process; it speaks to whatever OPENAI_BASE_URL says."""
    return AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ.get("OPENAI_API_KEY", "none"))


async def ask(system: str, question: str) -> str:
    """One question to the model."""
    messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    answer = await client().chat.completions.create(model="any", messages=messages)
    return answer.choices[0].message.content or ""


async def run(question: str) -> dict[str, str]:
    """The system: `solver` works out the number, `host` words the reply."""
    with leyden.agent("solver"):
        number = await ask(PROMPTS[0], question)
    with leyden.agent("host"):
        reply = await ask("Say this in a kind way.", number)
    return {"number": number, "reply": reply}


def score(result: dict[str, str], task: dict[str, Any]) -> float:
    """1.0 for exactly the right number, else 0.0."""
    return float(result["number"].strip() == str(task["answer"]))
