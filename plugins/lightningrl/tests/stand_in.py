"""A stand-in for the TrainingRun: rollouts are chat completions over plain HTTP, recorded as the transport would."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from leyden.episode import Episode
from leyden.types import Attempt, Endpoint, LLMCall, Mark, Policy, Resources, Reward, Rollout, Span

Agent = Callable[["HttpRun", Any, Endpoint, int], tuple[list[LLMCall], float | None]]


def chat(endpoint: Endpoint, messages: Sequence[Mapping[str, str]], max_tokens: int) -> tuple[str, LLMCall]:
    """One chat completion on the policy; returns its text and its record."""
    body = {
        "model": endpoint.model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "logprobs": True,
        "return_token_ids": True,
        **endpoint.sampling,
        **endpoint.extra_body,
    }
    request = urllib.request.Request(
        f"{endpoint.base_url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as response:
        answer = json.loads(response.read())
    choice = answer["choices"][0]
    call = LLMCall(
        model=endpoint.model,
        policy="default",
        version=endpoint.version,
        response_id=answer["id"],
        prompt_ids=tuple(answer["prompt_token_ids"]),
        sampled_ids=tuple(choice["token_ids"]),
        logprobs=tuple(entry["logprob"] for entry in choice["logprobs"]["content"]),
        finish_reason=choice["finish_reason"],
    )
    return choice["message"]["content"] or "", call


def even_agent(run: HttpRun, task: Any, endpoint: Endpoint, index: int) -> tuple[list[LLMCall], float | None]:
    """One or two turns; the reward is the share of even token ids."""
    messages = [{"role": "user", "content": f"task number {task}"}]
    calls = []
    for _ in range(1 + index % 2):
        text, call = chat(endpoint, messages, 12)
        calls.append(call)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "again"}]
    ids = [token for call in calls for token in call.sampled_ids]
    return calls, sum(token % 2 == 0 for token in ids) / len(ids)


def episode(
    calls: Sequence[LLMCall], reward: float | None, *, group: str = "g", name: str = "r", mode: str = "train"
) -> Episode:
    """An episode of these calls of the agent `writer`."""
    spans = [
        Span(
            rollout_id=name,
            attempt_id=name,
            span_id=f"{name}-{i}",
            sequence=i,
            name="chat",
            kind="llm",
            agent="writer",
            call=call,
        )
        for i, call in enumerate(calls)
    ]
    if reward is not None:
        spans.append(
            Span(
                rollout_id=name,
                attempt_id=name,
                span_id=f"{name}-reward",
                sequence=len(calls),
                name="reward",
                kind="reward",
                reward=Reward(value=reward),
            )
        )
    rollout = Rollout(id=name, task=None, status="succeeded", created_at=0.0, group=group, mode=mode)  # type: ignore[arg-type]
    attempt = Attempt(
        id=name, rollout_id=name, number=1, worker="w", status="succeeded", started_at=0.0, lease_until=0.0
    )
    return Episode(rollout=rollout, attempt=attempt, spans=tuple(spans))


class HttpRun:
    """`leyden.TrainingRun` without a store."""

    def __init__(
        self,
        directory: Path,
        *,
        tasks: Sequence[Any] = tuple(range(32)),
        val_tasks: Sequence[Any] = (),
        agent: Agent = even_agent,
        seed: int = 1,
        resumed: bool = False,
        parallel: int = 96,
    ) -> None:
        self.directory, self.tasks, self.agent, self.seed, self.resumed = directory, tasks, agent, seed, resumed
        self.val_tasks = {"val": val_tasks} if val_tasks else {}
        self.marks = (Mark(selector="writer"),)
        self.policies = ("default",)
        self.logged: dict[int, dict[str, float]] = {}
        self.published: list[Resources] = []
        self.episodes: list[Episode] = []
        self.state: dict[str, Any] | None = None
        self.on_log: Callable[[int], None] = lambda step: None
        self.on_request: Callable[[str, list[Any]], None] = lambda mode, tasks: None
        self._numbers = itertools.count()
        self._threads = ThreadPoolExecutor(parallel)

    async def publish(self, policies: Mapping[str, Policy], values: Mapping[str, Any] | None = None) -> Resources:
        made = Resources(policies=dict(policies), marks=self.marks, version=len(self.published) + 1)
        self.published.append(made)
        return made

    async def rollout(
        self,
        tasks: Sequence[Any],
        *,
        n: int = 1,
        mode: str = "train",
        resources: Resources | None = None,
        timeout_s: float | None = None,
    ) -> list[Episode]:
        assert resources is not None
        endpoint = resources.policies["default"]
        assert isinstance(endpoint, Endpoint)
        self.on_request(mode, list(tasks))
        call = next(self._numbers)
        jobs = [(task, f"{call}-{t}", i) for t, task in enumerate(tasks) for i in range(n)]

        async def one(task: Any, group: str, index: int) -> Episode:
            loop = asyncio.get_running_loop()
            calls, reward = await loop.run_in_executor(self._threads, self.agent, self, task, endpoint, index)
            return episode(calls, reward, group=group, name=f"{group}-{index}", mode=mode)

        made = list(await asyncio.gather(*(one(*job) for job in jobs)))
        self.episodes += made
        return made

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self.logged.setdefault(step, {}).update(metrics)
        self.on_log(step)

    def progress(self, step: int, total: int) -> None: ...

    def save_state(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    def load_state(self) -> dict[str, Any] | None:
        return self.state
