"""The hooks of the LangChain adapter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any

from leyden.hookspecs import AgentInfo, Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden.types import Endpoint
from leyden_langchain import identity, stand_in
from leyden_langchain.package import FRAMEWORK, IMPORTS, SUPPORTED
from leyden_langchain.patches import patches


@hookimpl
def leyden_info() -> PluginInfo:
    """Say what the plugin is for."""
    from leyden_langchain import __version__

    return PluginInfo(name="langchain", version=__version__, framework=FRAMEWORK, requires=SUPPORTED, imports=IMPORTS)


@hookimpl
def leyden_instrument() -> Undo | None:
    """Name runs and record tools, now or when langchain-core is imported."""
    return patches.install()


@hookimpl
def leyden_discover(target: object) -> list[AgentInfo] | None:
    """The runnables with a run name inside a runnable."""
    return identity.discover(target) or None if is_runnable(target) else None


@hookimpl
def leyden_run(target: object, task: Any) -> Awaitable[Any] | None:
    """Run a runnable on a task."""
    return target.ainvoke(task) if is_runnable(target) else None  # type: ignore[attr-defined]


@hookimpl
def leyden_bind(model: object, endpoint: Endpoint) -> object | None:
    """A `ChatOpenAI` in the place of a chat model of another protocol."""
    return stand_in.make_stand_in(model, endpoint) if stand_in.is_chat_model(model) else None


@hookimpl
def leyden_doctor() -> list[Check]:
    """Whether the installed version is a tested one and has all that is needed."""
    return version_checks("langchain", SUPPORTED, patches.missing)


def is_runnable(target: object) -> bool:
    """Whether `target` is a LangChain runnable; False, without importing anything, where LangChain is not imported."""
    base = sys.modules.get("langchain_core.runnables.base")
    return base is not None and isinstance(target, base.Runnable)


def version_checks(name: str, requires: tuple[str, ...], missing: list[str]) -> list[Check]:
    """The lines of `leyden doctor` for an adapter of this family."""
    problem = outside(requires)
    detail = "; ".join([*([problem] if problem else []), *(f"{symbol} is not there" for symbol in missing)])
    remedy = f"pip install {' '.join(repr(text) for text in requires)}"
    return [Check(name=f"{name} version", ok=not detail, detail=detail or ", ".join(requires), remedy=remedy)]
