"""The user's rollout function: `@leyden.rollout`, and the checks that it can be run on a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from leyden.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_MARKER = "__leyden_rollout__"


def rollout(function: F) -> F:
    """Mark the function that runs the agent on one task; it is returned unchanged.

    It takes the task and returns the reward as a finite number, or None where it gives none (or gave it with
    `leyden.emit_reward`). It may be async or not; one that is not runs in a thread of its own. `leyden train file.py`
    finds the function by this mark.
    """
    check_function(function)
    setattr(function, _MARKER, True)
    return function


def is_rollout(candidate: object) -> bool:
    """Whether `candidate` was decorated with `@leyden.rollout`."""
    return callable(candidate) and getattr(candidate, _MARKER, False) is True


def check_function(function: object) -> None:
    """Raise `ConfigError` for something that cannot be called with one task."""
    name = name_of(function)
    if not callable(function):
        raise ConfigError(f"{name} is not a function; give train() a function that takes a task and returns a reward")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{name} is a generator; a rollout function returns its reward, it does not yield")
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise ConfigError(f"{name} must take exactly one argument, the task ({error})")
    except ValueError:  # a builtin without a signature
        return


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling `function` gives a coroutine (so that it must not be called in a thread)."""
    call = type(function).__call__ if not inspect.isroutine(function) else function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def name_of(function: object) -> str:
    """A name for messages."""
    return str(getattr(function, "__qualname__", None) or f"{function!r:.60}")
