"""Pure functions: spans → transitions → trajectories (exact-prefix merge, masks, alignment checks).

Source: Agent Lightning, arXiv 2508.03680, section 3 (transitions of an agent's Markov decision process). Two
transitions of one agent are merged where the later prompt begins with exactly the earlier prompt and answer, so that
no token is counted twice; anything else starts a new trajectory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leyden.types import LLMCall, Span, Struct


class Transition(Struct, frozen=True):
    """One whole LLM call of a marked agent: state (`call.prompt_ids`), action (`call.sampled_ids`), log-probs, version."""

    span: Span
    call: LLMCall

    @property
    def agent(self) -> str:
        """Path of the agent that called."""
        return self.span.agent


class Trajectory(Struct, frozen=True):
    """Merged transitions of one agent.

    `response_ids`, `mask`, `logprobs`, `versions`, `owner` have one entry per token after the prompt. `mask` is 1 for a
    sampled token and 0 for one that the environment put between two answers (log-prob 0.0, version -1 there); `owner`
    is the index in `transitions` that a token belongs to (a token between two answers: the later one's).
    """

    agent: str
    policy: str
    transitions: tuple[Transition, ...]
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    owner: tuple[int, ...]


def hole_of(call: LLMCall) -> str | None:
    """Why a routed call cannot be trained on, or None: alignment of ids and log-probs is checked here."""
    if call.hole:
        return call.hole
    if not call.prompt_ids:
        return "the server sent no prompt token ids"
    if not call.sampled_ids:
        return "the server sent no sampled token ids"
    if len(call.logprobs) != len(call.sampled_ids):
        return f"{len(call.sampled_ids)} sampled ids but {len(call.logprobs)} log-probs"
    return None


def transitions(spans: Iterable[Span], policy: str | None = None) -> list[Transition]:
    """The trainable calls among `spans` in their order; only those of `policy` if given.

    A response id of a server counts once: a cached or repeated answer is not trained twice.
    """
    found: list[Transition] = []
    seen: set[tuple[str, str]] = set()
    for span in sorted(spans, key=lambda item: item.sequence):
        call = span.call
        if call is None or call.policy is None or (policy is not None and call.policy != policy) or hole_of(call):
            continue
        if call.response_id:
            if (call.server, call.response_id) in seen:
                continue
            seen.add((call.server, call.response_id))
        found.append(Transition(span=span, call=call))
    return found


def trajectories(steps: Sequence[Transition], *, merge: bool = True) -> list[Trajectory]:
    """Group transitions into trajectories, in the order of their first call.

    With `merge`, a transition is appended to the trajectory of its agent and policy with the longest token history that
    is an exact prefix of its prompt (agents may hold several conversations at once).
    """
    chains: list[list[Transition]] = []
    for step in steps:
        best: list[Transition] | None = None
        for chain in chains if merge else ():
            last = chain[-1]
            if last.agent != step.agent or last.call.policy != step.call.policy:
                continue
            history = last.call.prompt_ids + last.call.sampled_ids
            longer = best is None or len(history) > len(best[-1].call.prompt_ids) + len(best[-1].call.sampled_ids)
            if longer and step.call.prompt_ids[: len(history)] == history:
                best = chain
        if best is None:
            chains.append([step])
        else:
            best.append(step)
    return [_join(chain) for chain in chains]


def _join(chain: Sequence[Transition]) -> Trajectory:
    first = chain[0].call
    ids, mask, logprobs, versions, owner = [], [], [], [], []
    length = len(first.prompt_ids)
    for index, step in enumerate(chain):
        call = step.call
        between = call.prompt_ids[length:]
        count = len(call.sampled_ids)
        ids += [*between, *call.sampled_ids]
        mask += [0] * len(between) + [1] * count
        logprobs += [0.0] * len(between) + list(call.logprobs)
        versions += [-1] * len(between) + [call.version or 0] * count
        owner += [index] * (len(between) + count)
        length = len(call.prompt_ids) + count
    return Trajectory(
        agent=chain[0].agent,
        policy=first.policy or "",
        transitions=tuple(chain),
        prompt_ids=first.prompt_ids,
        response_ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        versions=tuple(versions),
        owner=tuple(owner),
    )
