"""Algorithms by name: the entry points of the group `leyden.algorithms`, made from plain settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

import msgspec

from leyden.algorithm import Algorithm
from leyden.config import construct
from leyden.errors import ConfigError, PluginError

GROUP = "leyden.algorithms"
DEFAULT = "lightningrl"


def installed() -> dict[str, str]:
    """Name → where it is defined, of every installed algorithm."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def make(name: str | None, settings: Mapping[str, Any]) -> Algorithm:
    """The algorithm `name` with `settings`; by default `lightningrl`, or the only one that is installed."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name is None:
        name = DEFAULT if DEFAULT in points or len(points) != 1 else next(iter(points))
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise ConfigError(f"no algorithm {name!r} is installed (installed: {known}); pip install leyden-{name}")
    try:
        factory = points[name].load()
    except Exception as error:
        raise PluginError(f"the algorithm {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    return check(construct(factory, settings, f"algorithm {name!r}"))


def check(algorithm: object) -> Algorithm:
    """Raise `ConfigError` for something that has no `run(run)`."""
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        raise ConfigError(
            f"{algorithm!r:.80} is no algorithm: give an object with `async def run(self, run)`"
            + (", not its class" if isinstance(algorithm, type) else "")
        )
    return algorithm


def describe(algorithm: object) -> dict[str, Any]:
    """Name and settings, to tell whether a resumed run has the same ones. Settings are the public data of `settings` or
    `config`, or of the algorithm itself where it is a struct or a dataclass."""
    settings: Any = {}
    for source in (getattr(algorithm, "settings", None), getattr(algorithm, "config", None), algorithm):
        if isinstance(source, Mapping):
            settings = dict(source)
        elif isinstance(source, msgspec.Struct):
            settings = msgspec.to_builtins(source, enc_hook=str)
        elif dataclasses.is_dataclass(source) and not isinstance(source, type):
            shown = [field.name for field in dataclasses.fields(source) if field.init]
            settings = {name: getattr(source, name) for name in shown}
        if settings:
            break
    return {"name": type(algorithm).__qualname__, "settings": settings}
