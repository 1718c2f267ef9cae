"""A CrewAI crew that handles messages of customers: a sorter names the department, a clerk writes the first reply.

The two work one after the other: the clerk's task has the sorter's answer as its context. This is an ordinary program: it
knows nothing of how, or that, one of its agents is trained. ``handle`` runs the crew on one message and ``score`` is the
metric.

    BASE_URL=http://127.0.0.1:8000/v1 BASE_MODEL=base python agent.py "My parcel 733 is not here yet."
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # read as CrewAI is imported
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent, Crew, CrewOutput, Process, Task

DEPARTMENTS = ("billing", "delivery", "login", "repair")


@functools.cache
def model(max_tokens: int) -> LLM:
    """The language model of one agent, greedy; the key is not used by a server of one's own."""
    return LLM(
        model=os.environ.get("BASE_MODEL", "base"),
        provider="openai",
        base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1"),
        api_key=os.environ.get("BASE_API_KEY", "none"),
        temperature=0,
        max_tokens=max_tokens,
        timeout=120,
    )


SORTER_SHOTS = [
    ("My radio is broken.", "repair"),
    ("You took too much money for order 512.", "billing"),
    ("I don't know my password, user 291.", "login"),
    ("My box 733 is not here yet.", "delivery"),
    ("I want my money back for bill 204.", "billing"),
    ("The fan does not spin.", "repair"),
    ("The parcel 518 went to my neighbour.", "delivery"),
    ("Account 640 does not open.", "login"),
]


def sorting(message: str, sorter: Agent | None = None) -> Task:
    """The task of sorting one message."""
    return Task(description=message, expected_output="One word.", agent=sorter)


def turn(role: str, text: str) -> str:
    """One turn of a conversation in ChatML, the notation of the model's own training."""
    return f"<|im_start|>{role}\n{text}<|im_end|>"


def sorter_template() -> str:
    """What the sorter is told first: its role, and some messages with their departments as earlier turns."""
    turns = [turn("system", "You are {role}. {backstory}")]
    for message, department in SORTER_SHOTS:
        turns += [turn("user", sorting(message).prompt()), turn("assistant", department)]
    return "\n".join(turns)


def crew() -> Crew:
    """A new crew for one message."""
    sorter = Agent(
        role="sorter",
        goal="name the department for a message",
        backstory="You sort the messages of customers.",
        llm=model(max_tokens=5),
        # CrewAI's own prompt is long, and a small model needs to be shown what is meant: prompt templates of our own.
        system_template=sorter_template(),
        prompt_template=turn("user", "{input}"),
        response_template=turn("assistant", "{{ .Response }}"),
    )
    clerk = Agent(
        role="clerk",
        goal="tell the customer who will help",
        backstory="You write one short sentence.",
        llm=model(max_tokens=16),
    )
    sort = sorting("{message}", sorter)
    reply = Task(
        description="Thank the customer and name the department that will help.",
        expected_output="One sentence.",
        agent=clerk,
        context=[sort],
    )
    return Crew(agents=[sorter, clerk], tasks=[sort, reply], process=Process.sequential)


async def handle(message: str) -> CrewOutput:
    """What the crew made of one message."""
    return await crew().akickoff(inputs={"message": message})


def department(output: CrewOutput) -> str | None:
    """The department that the sorter named; None where its answer is anything but one of them."""
    word = output.tasks_output[0].raw.strip().removesuffix(".").lower()
    return word if word in DEPARTMENTS else None


def score(output: CrewOutput, task: Mapping[str, Any]) -> float:
    """1.0 when the sorter named the department that ``task`` is for, else 0.0."""
    return float(department(output) == task["department"])


async def main(message: str) -> None:
    """Let the crew handle one message and print what each agent made of it."""
    output = await handle(message)
    for part in output.tasks_output:
        print(f"{part.agent}: {part.raw}")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
