"""A stand-in for a language model that needs no download: it can add, and it does what its system message says."""

from __future__ import annotations

import re
from typing import Any

from leyden.testing.server import FakeModelServer


def reply(body: dict[str, Any]) -> str:
    """The answer to a chat request. It is chatty unless it is told to give the number alone; easy sums it just answers."""
    system, question = body["messages"][0]["content"], body["messages"][-1]["content"]
    numbers = [int(text) for text in re.findall(r"\d+", question)]
    if len(numbers) != 2:
        return f"Here you are: {question}"
    total = sum(numbers)
    if "number alone" in system or max(numbers) < 10:
        return str(total)
    return f"Let us see: {numbers[0]} and {numbers[1]} make {total}."


def server() -> FakeModelServer:
    """A server of the stand-in on a free port; use it in `with`."""
    return FakeModelServer(reply=reply)
