"""How LangChain names an agent: by the run name that the user gave a runnable.

A run name is given with `with_config(run_name=...)` or in the `config` of a call; LangChain drops it before it calls
what is inside, so it belongs to one runnable exactly. The default names of runnables (their class or function) are
not agents.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

from opentelemetry import context as otel_context

from leyden.agents import wrap
from leyden.generators import pull, pull_async
from leyden.hookspecs import AgentInfo
from leyden.patching import Function
from leyden.scope import child_path, current_agent
from leyden.tracing import recording
from leyden_langchain.package import FRAMEWORK


def given_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The run name in the config of a call `method(self, input, config=None, ...)`; for a batch, one that all share."""
    config = kwargs.get("config", args[2] if len(args) > 2 else None)
    if isinstance(config, list):
        names = {item.get("run_name") if isinstance(item, dict) else None for item in config}
        name = names.pop() if len(names) == 1 else None
    else:
        name = config.get("run_name") if isinstance(config, dict) else None
    return name if isinstance(name, str) and name.strip("/ ") else None


def entered(name: str) -> bool:
    """Whether the calling code is already agent `name`: one method calls another, or a node is named like its chain."""
    return current_agent().rsplit("/", 1)[-1] == name.strip().strip("/")


def named_run(original: Function) -> Function:
    """A method of a runnable that runs as the agent that its config names."""
    run = _as_generator(original)
    streams_in = original.__name__ in ("transform", "atransform")

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not recording():
            return original(*args, **kwargs)
        name = given_name(args, kwargs)
        if name is None or entered(name):
            return original(*args, **kwargs)
        return wrap(name, run, FRAMEWORK)(*(_outside(args) if streams_in else args), **kwargs)

    return call


def _as_generator(method: Function) -> Function:
    """`method` as a generator function where it is a plain one that returns a stream."""
    if method.__name__ in ("stream", "transform") and not inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from method(*args, **kwargs)

        return stream
    if method.__name__ in ("astream", "atransform") and not inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def astream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for item in method(*args, **kwargs):
                yield item

        return astream
    return method


def _outside(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments whose input stream is computed as the caller and not as the agent that consumes it."""
    if len(args) > 1 and isinstance(args[1], AsyncIterator):
        source: Any = pull_async(args[1], otel_context.get_current())
    elif len(args) > 1 and isinstance(args[1], Iterator):
        source = pull(args[1], otel_context.get_current())
    else:
        return args
    return (args[0], source, *args[2:])


def discover(target: Any, parent: str = "") -> list[AgentInfo]:
    """The runnables with a run name inside `target`, in the order in which they are built into it."""
    config = getattr(target, "config", None)
    name = config.get("run_name") if isinstance(config, dict) else None
    found: list[AgentInfo] = []
    if isinstance(name, str) and name.strip("/ ") and parent.rsplit("/", 1)[-1] != name:
        parent = child_path(name, parent)
        found.append(AgentInfo(path=parent, target=target, framework=FRAMEWORK))
    for part in parts(target):
        found.extend(discover(part, parent))
    return found


def parts(target: Any) -> list[Any]:
    """The runnables that a composed runnable is made of."""
    from langchain_core.runnables import (
        RunnableBranch,
        RunnableLambda,
        RunnableParallel,
        RunnableSequence,
        RunnableWithFallbacks,
    )
    from langchain_core.runnables.base import RunnableBindingBase, RunnableEachBase
    from langchain_core.runnables.passthrough import RunnableAssign

    if isinstance(target, (RunnableBindingBase, RunnableEachBase)):
        return [target.bound]
    if isinstance(target, RunnableSequence):
        return list(target.steps)
    if isinstance(target, RunnableParallel):
        return list(target.steps__.values())
    if isinstance(target, RunnableAssign):
        return [target.mapper]
    if isinstance(target, RunnableBranch):
        return [part for branch in target.branches for part in branch] + [target.default]
    if isinstance(target, RunnableWithFallbacks):
        return list(target.runnables)
    if isinstance(target, RunnableLambda):
        return list(target.deps)
    return []
