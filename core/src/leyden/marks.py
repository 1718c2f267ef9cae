"""Marks: which agents are trained, as selectors on agent paths, and which policy each one shares.

A selector without "/" is a glob on the name of one agent; the mark covers that agent and every agent below it. A
selector with "/" is a glob on a path from the root (`planner/*`, `**/writer`), and covers what lies below it too. The
deepest matching agent decides; of two selectors that match at the same depth the one with fewer wildcards does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from types import MethodType

from leyden.errors import MarkError
from leyden.types import Mark


class Marks:
    """The marks of this process, collected by `trainable` until `train` publishes them with the resources."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._objects: list[tuple[object, str]] = []

    def add(self, selector: object, policy: str = "default") -> None:
        """Add a mark; a selector that is not text is a framework's object, resolved to paths when agents are known."""
        if not policy:
            raise MarkError("a policy needs a name that is not empty")
        if isinstance(selector, str):
            if not selector.strip("/ "):
                raise MarkError("a mark needs an agent's name or a glob on its path, say trainable('writer')")
            mark = Mark(selector=selector.strip("/ "), policy=policy)
            _pattern(mark.selector)
            if mark not in self._marks:
                self._marks.append(mark)
        else:
            self._objects.append((selector, policy))

    def clear(self) -> None:
        """Forget every mark."""
        self._marks.clear()
        self._objects.clear()

    def resolve(self, known: Iterable[tuple[str, object]]) -> tuple[Mark, ...]:
        """All marks as selectors. `known`: (path, object) of each discovered agent, to find marked objects in.

        Raises `MarkError` for a marked object that is no discovered agent.
        """
        agents = list(known)
        found = list(self._marks)
        for target, policy in self._objects:
            paths = [path for path, candidate in agents if _same(candidate, target)]
            if not paths:
                raise MarkError(
                    f"the marked object {target!r:.80} is not an agent of the discovered system; "
                    f"known agents: {', '.join(path for path, _ in agents) or 'none'}"
                )
            found.extend(Mark(selector=path, policy=policy) for path in paths)
        return tuple(found)


def _same(candidate: object, target: object) -> bool:
    """Whether an agent's object is the marked one; a bound method is a new, equal object each time it is looked up."""
    return candidate is target or (isinstance(target, MethodType) and candidate == target)


registry = Marks()


def trainable(selector: object, *, policy: str = "default") -> None:
    """Mark agents for training: `trainable("writer")`, `trainable("team/*", policy="b")`, `trainable(graph_node)`."""
    registry.add(selector, policy)


@functools.lru_cache(maxsize=1024)
def _pattern(selector: str) -> re.Pattern[str]:
    """Regular expression of a path glob: `*` stays inside one name, `**` crosses names."""
    text = "".join(_GLOBS.get(part) or _literal(part) for part in _PARTS.split(selector) if part)
    try:
        return re.compile(text + r"\Z", re.DOTALL)
    except re.error as error:
        raise MarkError(f"the selector {selector!r} is not a valid glob: {error}") from None


_PARTS = re.compile(r"((?:^|(?<=/))\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])")
_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _literal(part: str) -> str:
    """Regular expression of a character class (`[ab]`, `[!ab]`) or of text that stands for itself."""
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        negated = part[1] == "!"
        return ("[^/" if negated else "[") + re.sub(r"([\\^&~|\[])", r"\\\1", part[1 + negated : -1]) + "]"
    return re.escape(part)


def matches(selector: str, path: str) -> bool:
    """Whether `selector` names exactly the agent `path` (not an agent above or below it)."""
    if "/" not in selector and selector != "**":
        return _pattern(selector).match(path.rsplit("/", 1)[-1]) is not None
    return _pattern(selector).match(path) is not None


@functools.lru_cache(maxsize=4096)
def mark_of(path: str, marks: tuple[Mark, ...]) -> Mark | None:
    """The mark that decides for the agent `path`, or None where it is not marked."""
    names = path.split("/") if path else []
    for depth in range(len(names), 0, -1):
        here = "/".join(names[:depth])
        hits = [mark for mark in marks if matches(mark.selector, here)]
        if hits:
            return min(hits, key=lambda mark: (sum(map(mark.selector.count, "*?[")), -len(mark.selector)))
    return None


def check(marks: Sequence[Mark], known: Sequence[str]) -> None:
    """Raise `MarkError` if there is no mark, if two marks give one selector two policies, or if one matches no agent.

    `known`: paths of the discovered agents; empty says that nothing could be discovered and nothing is checked.
    """
    if not marks:
        raise MarkError("no agent is marked: call leyden.trainable('<agent>') or pass --train <agent>" + _known(known))
    policies: dict[str, str] = {}
    for mark in marks:
        if policies.setdefault(mark.selector, mark.policy) != mark.policy:
            raise MarkError(
                f"{mark.selector!r} is marked for two policies: {policies[mark.selector]!r} and {mark.policy!r}"
            )
        if known and not any(matches(mark.selector, path) for path in known):
            names = {name for path in known for name in (path, path.rsplit("/", 1)[-1])}
            from difflib import get_close_matches  # only for an error: it is slow to import

            close = get_close_matches(mark.selector, sorted(names), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise MarkError(
                f"the mark {mark.selector!r} matches no agent.{hint}{_known(known)} "
                f"If the agent is named at run time, say so first: leyden.declare({mark.selector!r})"
            )


def _known(known: Sequence[str]) -> str:
    return f" Known agents: {', '.join(sorted(known))}." if known else ""
