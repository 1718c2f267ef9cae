"""Recorded calls against a real vLLM server: ids and log-probs are the engine's own, plain and streamed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import leyden
from leyden.episode import Episode
from leyden.types import LLMCall, Mark

pytestmark = pytest.mark.heavy

MESSAGES = [{"role": "system", "content": "Say a word."}, {"role": "user", "content": "Now."}]


def ask_engine(served: Any, **more: Any) -> dict[str, Any]:
    """The same request, sent by hand: what the engine itself says that it read and sampled."""
    body = {
        "model": "policy", "messages": MESSAGES, "temperature": 1.0, "max_tokens": 12, "seed": 7,
        "logprobs": True, "return_token_ids": True, **more,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{served.origin}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


def only_call(episode: Episode) -> LLMCall:
    assert episode.succeeded, episode.rollout.reason
    (call,) = [span.call for span in episode.spans if span.call is not None]
    return call


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_recorded_ids_and_logprobs_are_the_engines(
    served: Any, episodes: Callable[..., list[Episode]], streamed: bool
) -> None:
    import openai

    async def agent(task: str) -> float:
        async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="unused") as client:
            with leyden.agent("writer"):
                answer = await client.chat.completions.create(model="own", messages=MESSAGES, stream=streamed)  # type: ignore[call-overload]
                if streamed:
                    assert [chunk async for chunk in answer]
        return 1.0

    (episode,) = episodes(agent, ["x"], {"default": served.endpoint(version=3)}, [Mark(selector="writer")])
    call, truth = only_call(episode), ask_engine(served)
    choice = truth["choices"][0]
    assert list(call.prompt_ids) == truth["prompt_token_ids"]
    assert list(call.sampled_ids) == choice["token_ids"]
    expected = [token["logprob"] for token in choice["logprobs"]["content"]]
    assert list(call.logprobs) == pytest.approx(expected, abs=1e-4)
    assert (call.hole, call.policy, call.version, call.streamed) == (None, "default", 3, streamed)
    assert call.server == served.origin
    assert episode.reward == 1.0
    assert len(episode.transitions("default")) == 1


def test_logprobs_are_those_of_a_plain_transformers_forward(served: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    answer = ask_engine(served)
    prompt, sampled = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
    model = AutoModelForCausalLM.from_pretrained(served.model, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + sampled])).logits[0]
    table = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    expected = table.gather(1, torch.tensor(sampled)[:, None])[:, 0].tolist()
    given = [token["logprob"] for token in answer["choices"][0]["logprobs"]["content"]]
    assert given == pytest.approx(expected, abs=1e-3)


def test_a_prompt_longer_than_the_context_fails_the_attempt_with_the_engines_reason(
    served: Any, episodes: Callable[..., list[Episode]]
) -> None:
    import openai

    async def agent(task: str) -> float:
        async with openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="unused") as client:
            with leyden.agent("writer"):
                await client.chat.completions.create(
                    model="own", messages=[{"role": "user", "content": "word " * 2000}]
                )
        return 1.0

    (episode,) = episodes(agent, ["x"], {"default": served.endpoint()}, [Mark(selector="writer")])
    assert episode.rollout.status == "failed"
    assert "context length" in str(episode.rollout.reason)
    assert episode.reward is None
    assert episode.transitions("default") == []
