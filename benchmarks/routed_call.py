"""What a call costs through Leyden: the bare SDK call, an observed one and a routed one against one very fast server.

    python benchmarks/routed_call.py [--calls 1000] [--tokens 32]

The server runs in a process of its own and answers from memory. The kinds of call take turns within one run, so that what
else the machine does hits all of them. Two clocks: `CPU` is the processor time of the calling thread (all that Leyden adds
is spent there; other programs hardly disturb it), `wall` the time that passes. Figures are lowest deciles: what a call costs
while nobody takes the core away. `bare` sends what the agent sends; `bare, same fields` also
asks for token ids and log-probs itself, which costs the SDK time to parse. Needs leyden, leyden-openai and openai.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import importlib.metadata
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

GOAL_MS = 0.3
BLOCK = 25
"""Calls between two changes from hooked to bare."""
SKIPPED = 4
MESSAGES: Any = [
    {"role": "system", "content": "You answer in one short sentence. " * 8},
    {"role": "user", "content": "What is the capital of France, and how many people live there? " * 4},
]


class Fast(asyncio.Protocol):
    """Answers every request at once with one of two bodies made beforehand."""

    bodies: tuple[bytes, bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(rest) >= length:
            self.data = rest[length:]
            self.transport.write(self.bodies[b'"return_token_ids":true' in rest])


def serve(pipe: Connection, tokens: int) -> None:
    """The server's process: sends its port, then serves until it is terminated."""

    def body(full: bool) -> bytes:
        content = [
            {"token": f"tok{i}", "logprob": -0.1 * i, "bytes": [116, 111, 107], "top_logprobs": []}
            for i in range(tokens)
        ]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": "Paris. " * tokens},
            "finish_reason": "stop",
            "logprobs": {"content": content} if full else None,
        }
        answer: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "policy",
            "choices": [choice],
            "usage": {"prompt_tokens": 90, "completion_tokens": tokens, "total_tokens": 90 + tokens},
        }
        if full:
            choice["token_ids"] = list(range(1000, 1000 + tokens))
            answer["prompt_token_ids"] = list(range(2000, 2090))
        data = json.dumps(answer, separators=(",", ":")).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)

    Fast.bodies = (body(False), body(True))

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Fast, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


class Sink:
    """Takes spans and keeps none, like an exporter whose queue is emptied elsewhere."""

    def emit(self, span: Any) -> None:
        pass


Times = dict[str, list[tuple[float, float]]]
"""Seconds of each call by kind: processor time of the calling thread, and wall time."""


def measure(port: int, calls: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of each kind of call (lowest deciles): CPU, wall."""
    import openai

    import leyden
    from leyden.scope import AttemptScope, attempt_scope
    from leyden.types import Endpoint, Mark, Resources, Rollout
    from leyden_openai import adapter

    url = f"http://127.0.0.1:{port}/v1"
    policy = Endpoint(base_url=url, model="policy", version=1, sampling={"temperature": 1.0})
    resources = Resources(policies={"default": policy}, marks=(Mark(selector="writer"),), version=1)
    rollout = Rollout(id="r-1", task=None, status="running", created_at=0.0)
    scope = AttemptScope(rollout=rollout, attempt_id="a-1", resources=resources, sink=Sink())
    client = openai.OpenAI(base_url=url, api_key="key", max_retries=0)
    times: Times = {"bare": [], "bare, same fields": [], "observed": [], "routed": []}

    def call(name: str, **more: Any) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        client.chat.completions.create(model="own", messages=MESSAGES, temperature=0.7, **more)
        times[name].append((time.thread_time() - cpu, time.perf_counter() - wall))

    def inside(agent: str, name: str) -> None:
        with attempt_scope(scope), leyden.agent(agent):
            call(name)

    same: dict[str, Any] = {"logprobs": True, "extra_body": {"return_token_ids": True}}
    kinds = {"bare": partial(call, "bare"), "bare, same fields": partial(call, "bare, same fields", **same)}
    hooked = {"observed": partial(inside, "planner", "observed"), "routed": partial(inside, "writer", "routed")}
    gc.disable()
    for number in range(1 + calls // BLOCK):
        block(kinds, times)  # without any hook in the SDK
        undo = adapter.leyden_instrument()
        block(hooked, times)
        undo()
        gc.collect()
        if number == 0:  # the warm-up
            for taken in times.values():
                taken.clear()
    gc.enable()
    client.close()
    lowest = {
        name: [statistics.quantiles(clock, n=10)[0] * 1e3 for clock in zip(*taken, strict=True)]
        for name, taken in times.items()
    }
    return {name: (clocks[0], clocks[1]) for name, clocks in lowest.items()}


def block(kinds: dict[str, Callable[[], None]], times: Times) -> None:
    """`BLOCK` calls of each kind in turn. The first ones pay for the interpreter's caches, which hooking emptied."""
    for number in range(BLOCK + SKIPPED):
        for name, run in kinds.items():
            run()
            if number < SKIPPED:
                times[name].pop()


def rows(taken_ms: dict[str, tuple[float, float]], tokens: int) -> list[dict[str, Any]]:
    """The comparisons, with the goal where there is one."""
    found = []
    for ours, other in (("routed", "bare, same fields"), ("routed", "bare"), ("observed", "bare")):
        for index, clock in enumerate(("CPU", "wall")):
            mine, theirs = taken_ms[ours][index], taken_ms[other][index]
            found.append(
                {
                    "measure": f"{ours} call over SDK call ({other}), {tokens} tokens, {clock} ms",
                    "ours": round(mine, 4),
                    "other": round(theirs, 4),
                    "ratio": round(mine / theirs, 3),
                    "goal": f"difference < {GOAL_MS} ms",
                    "difference": round(mine - theirs, 4),
                }
            )
    return found


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=32, help="tokens of the answer")
    given = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, given.tokens), daemon=True)
    server.start()
    try:
        found = rows(measure(ours.recv(), given.calls), given.tokens)
    finally:
        server.terminate()
        server.join()
    for row in found:
        print(
            f"{row['measure']:<72} {row['ours']:>7.3f} {row['other']:>7.3f}  x{row['ratio']:<6} "
            f"{row['difference']:+.3f} ms  goal: {row['goal']}"
        )
    names = ("leyden", "leyden-openai", "openai", "opentelemetry-sdk")
    result = {
        "benchmark": "routed_call",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}},
        "calls": given.calls,
        "rows": found,
    }
    path = Path(__file__).parent / "results" / "routed_call.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
