"""Replacing a framework's functions, lazily and reversibly, for adapters whose framework has no event that serves.

Nothing is imported: a patch is applied when its module is there, now or later. Taking it out restores the original;
where somebody else has wrapped ours meanwhile, ours stays in place and only passes calls on.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import wrapt

logger = logging.getLogger(__name__)

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """One replaced function.

    `make` gets the original and returns its replacement (for a method: a function that takes `self` first).
    """

    module: str
    symbol: str
    """Name in the module, say `run` or `Tool.run`. A class must define the method itself."""
    make: Callable[[Function], Function]
    reason: str
    """Why no public event serves."""
    verified: str
    """Versions of the framework that it was run with."""
    optional: bool = False
    """Whether only some supported versions have it, so that its absence is nothing to report."""


@dataclass(slots=True)
class _Applied:
    owner: Any
    name: str
    original: Function
    replacement: Function
    current: list[bool]
    """[True] until it is taken out. One that somebody else wraps stays in the chain of calls, and must not come back to life
    below a newer one of ours."""


@dataclass(eq=False)
class Patches:
    """The patches of one adapter. `requires`: the supported versions as requirements, say `("langgraph>=1,<2",)`."""

    adapter: str
    requires: Sequence[str]
    patches: Sequence[Patch]
    missing: list[str] = field(default_factory=list)
    """Symbols that the installed version of the framework does not have."""
    users: int = 0
    """Who has installed the patches and not yet taken them out: a plugin, an OpenTelemetry instrumentor, or both."""
    _applied: list[_Applied] = field(default_factory=list)
    _hooked: set[str] = field(default_factory=set)
    _warned: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def active(self) -> bool:
        """Whether somebody uses the patches."""
        return self.users > 0

    def install(self) -> Callable[[], None]:
        """Apply every patch whose module is imported, and the others when it is.

        Applied once however often it is called. Returns what takes this one use back; with the last use the originals
        are put back.
        """
        with self._lock:
            self.users += 1
            if self.users == 1:
                self._apply_all()
        taken_back = False

        def undo() -> None:
            nonlocal taken_back
            with self._lock:
                if not taken_back and self.users:
                    taken_back = True
                    self.users -= 1
                    if not self.users:
                        self.remove()

        return undo

    def _apply_all(self) -> None:
        for module in dict.fromkeys(patch.module for patch in self.patches):
            if module in self._hooked:
                if module in sys.modules:
                    self._imported(module, sys.modules[module])
                continue
            self._hooked.add(module)
            wrapt.register_post_import_hook(functools.partial(self._imported, module), module)

    def remove(self) -> None:
        """Put every original back, whoever uses them."""
        with self._lock:
            self.users = 0
            for done in reversed(self._applied):
                done.current[0] = False
                if vars(done.owner).get(done.name) is done.replacement:
                    setattr(done.owner, done.name, done.original)
            self._applied.clear()

    def _imported(self, name: str, module: ModuleType) -> None:
        """Called by the import system: nothing may be raised here, it would break the user's import.

        `name` is what the module was imported as; frameworks that copy names between modules overwrite `__name__` too.
        """
        try:
            with self._lock:
                if self.active:
                    self._check_version()
                    for patch in self.patches:
                        if patch.module == name:
                            self._apply(patch, module)
        except Exception:
            logger.exception("adapter %r could not be applied to %s; the agent runs without it", self.adapter, module)

    def _apply(self, patch: Patch, module: ModuleType) -> None:
        *path, name = patch.symbol.split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part, None)
        original = vars(owner).get(name) if owner is not None else None
        if original is None and patch.optional:
            return
        if original is None:
            self.missing.append(f"{patch.module}.{patch.symbol}")
            logger.warning(
                "adapter %r: %s.%s is not there, so this is lost: %s. Install a supported version: %s",
                self.adapter,
                patch.module,
                patch.symbol,
                patch.reason,
                ", ".join(self.requires),
            )
            return
        if any(done.owner is owner and done.name == name for done in self._applied):
            return
        made, method, current = patch.make(original), bool(path), [True]

        def call(wrapped: Function, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not current[0]:
                return wrapped(*args, **kwargs)
            return made(instance, *args, **kwargs) if method else made(*args, **kwargs)

        # A wrapt wrapper still looks like its original (coroutine function, generator function, signature).
        replacement: Function = wrapt.FunctionWrapper(original, call)
        setattr(owner, name, replacement)
        self._applied.append(_Applied(owner, name, original, replacement, current))

    def _check_version(self) -> None:
        if not self._warned and (problem := outside(self.requires)):
            self._warned = True
            logger.warning("adapter %r: %s", self.adapter, problem)


def outside(requires: Sequence[str]) -> str | None:
    """What is wrong with the installed versions by `requires` (PEP 508), in words; None where all is well.

    A distribution that is not installed is not a problem here.
    """
    from packaging.requirements import Requirement

    for text in requires:
        wanted = Requirement(text)
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            return (
                f"{wanted.name} {version} is outside the tested range {wanted.specifier}; trying all the same. "
                f"If agents are not found, pip install '{text}'"
            )
    return None
