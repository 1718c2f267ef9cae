"""Finding the agents of the user's system before anything runs: in `app`, or in what the rollout function refers to."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from leyden import marks
from leyden.agents import declared_agents
from leyden.plugins import plugins
from leyden.types import Mark

MAX_OBJECTS = 500
MAX_DEPTH = 4
_PLAIN = (str, bytes, int, float, complex, bool, type(None), tuple, list, dict, set, frozenset)
_LIBRARY = tuple(
    {str(Path(sysconfig.get_paths()[name]).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def discover(function: Callable[..., Any] | None = None, app: object = None) -> dict[str, object]:
    """Path → object (or None) of every agent that is known: found by an adapter, decorated, or declared.

    With `app`, adapters look into it alone. Without, into every object that `function` refers to by name: its globals
    and closure, one attribute deep in modules, and the same in the functions of the user's that it calls.
    """
    found: dict[str, object] = {}
    for candidate in [app] if app is not None else (referred(function) if function is not None else ()):
        for agent in plugins.discover(candidate):
            found.setdefault(agent.path, agent.target)
    for path, target in declared_agents().items():
        found.setdefault(path, target)
    return found


def resolve_marks(
    function: Callable[..., Any] | None, app: object = None
) -> tuple[tuple[Mark, ...], dict[str, object]]:
    """The process's marks, checked against the agents that exist. Returns both. Raises `MarkError`."""
    agents = discover(function, app)
    resolved = marks.registry.resolve(agents.items())
    marks.check(resolved, list(agents))
    return resolved, agents


def referred(function: Callable[..., Any]) -> Iterator[object]:
    """The objects that a function refers to, each once; functions of the user's are followed."""
    seen: set[int] = set()
    queue: list[tuple[object, int]] = [(function, 0)]
    while queue and len(seen) < MAX_OBJECTS:
        current, depth = queue.pop(0)
        if id(current) in seen or isinstance(current, _PLAIN):
            continue
        seen.add(id(current))
        plain = _as_function(current)
        if plain is not None:
            if depth < MAX_DEPTH and (depth == 0 or _is_users(plain.__module__)):
                queue += [(item, depth + 1) for item in [getattr(current, "__self__", None), *_names_in(plain)]]
            continue
        yield current
        if depth < MAX_DEPTH and not isinstance(current, type) and _is_users(type(current).__module__):
            call = vars(type(current)).get("__call__")
            queue += [(item, depth + 1) for item in [call, *getattr(current, "__dict__", {}).values()]]


def _as_function(candidate: object) -> FunctionType | None:
    """The plain function behind a function, a bound method or a decorated one; None for any other object."""
    plain = getattr(candidate, "__func__", candidate)
    if not isinstance(plain, FunctionType):
        return None
    try:
        unwrapped = inspect.unwrap(plain)
    except ValueError:
        return plain
    return unwrapped if isinstance(unwrapped, FunctionType) else plain


def _is_users(module: str | None) -> bool:
    """Whether a module is the user's own: not of the standard library and not installed."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return file is not None and not str(Path(file).resolve()).startswith(_LIBRARY)


def _names_in(function: FunctionType) -> list[object]:
    """Values of the globals, closure cells and defaults that the function's code names, also in nested functions."""
    found: list[object] = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    found += list(function.__defaults__ or ()) + list((function.__kwdefaults__ or {}).values())
    names = _names(function.__code__)
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            attributes = vars(value)
            found += [attributes[other] for other in names if other in attributes]
        else:
            found.append(value)
    return found


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  an empty cell raises
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> list[str]:
    nested = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return list(dict.fromkeys([*code.co_names, *nested]))
