"""The plugin manager: guarded loading of the `leyden.plugins` entry points and guarded hook calls.

`LEYDEN_PLUGINS` (comma-separated names) pins what is loaded; empty text loads none.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import pluggy

from leyden.errors import PluginError
from leyden.hookspecs import AgentInfo, Check, LeydenSpec, PluginInfo, Undo
from leyden.scope import current_agent
from leyden.types import Span

logger = logging.getLogger(__name__)

T = TypeVar("T")

GROUP = "leyden.plugins"


class Plugins:
    """All plugins of this process. A plugin that fails is reported and skipped, never fatal."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("leyden")
        self.manager.add_hookspecs(LeydenSpec)
        self.failed: dict[str, str] = {}
        """Plugins that could not be loaded or instrumented, with the reason."""
        self.errors: Counter[str] = Counter()
        """Hook calls that raised, by `plugin.hook`."""
        self._undo: dict[str, list[Undo]] = {}
        self._lock = threading.RLock()
        self._loaded = False

    def load(self) -> None:
        """Load the installed plugins once. A name in LEYDEN_PLUGINS that is not installed is a `PluginError`."""
        with self._lock:
            if self._loaded:
                return
            points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
            pinned = os.environ.get("LEYDEN_PLUGINS")
            names = list(points) if pinned is None else [name.strip() for name in pinned.split(",") if name.strip()]
            for name in names:
                if name not in points:
                    raise PluginError(
                        f"LEYDEN_PLUGINS names {name!r}, which is not installed (installed: {', '.join(points) or 'none'}); "
                        f"pip install leyden-{name} or take it out of LEYDEN_PLUGINS"
                    )
            self._loaded = True
            for name in names:
                try:
                    self.register(name, points[name].load())
                except Exception as error:
                    self._report(name, "load", error)

    def register(self, name: str, plugin: object) -> None:
        """Add a plugin object under `name`; a misspelt hook is an error."""
        if self.manager.has_plugin(name):
            return
        self.manager.register(plugin, name=name)
        try:
            self.manager.check_pending()
        except pluggy.PluginValidationError:
            self.manager.unregister(name=name)
            raise

    def _report(self, name: str, hook: str, error: BaseException) -> None:
        key = f"{name}.{hook}"
        self.errors[key] += 1
        if hook in ("load", "leyden_instrument"):
            self.failed[name] = f"{type(error).__name__}: {error}"
        if self.errors[key] == 1:
            logger.warning("plugin %r failed in %s and is ignored there: %s", name, hook, error, exc_info=error)

    def _each(
        self, hook: str, *, passing: tuple[type[Exception], ...] = (), **arguments: Any
    ) -> Iterator[tuple[str, Any]]:
        """Call every implementation of `hook` by itself, as far as answers are asked for; (plugin, its answer).

        Exceptions of the kinds in `passing` are meant for the caller, all others are the plugin's own failures.
        """
        for implementation in reversed(getattr(self.manager.hook, hook).get_hookimpls()):
            given = {name: arguments[name] for name in implementation.argnames}
            try:
                answer = implementation.function(**given)
            except passing:
                raise
            except Exception as error:
                self._report(implementation.plugin_name, hook, error)
                continue
            if answer is not None:
                yield implementation.plugin_name, answer

    def _items(self, hook: str, kind: type[T], **arguments: Any) -> Iterator[tuple[str, T]]:
        """Every item of the lists that `hook` is answered with; an answer that is no list of `kind` is reported and left out."""
        for name, answer in self._each(hook, **arguments):
            try:
                items = list(answer)
                wrong = [item for item in items if not isinstance(item, kind)]
                if wrong:
                    raise TypeError(f"{hook} must give a list of {kind.__name__}, it gave {wrong[0]!r:.80}")
            except Exception as error:
                self._report(name, hook, error)
                continue
            yield from ((name, item) for item in items)

    def info(self) -> dict[str, PluginInfo]:
        """What is loaded, by plugin name."""
        self.load()
        found = {}
        for name, answer in self._each("leyden_info"):
            if isinstance(answer, PluginInfo):
                found[name] = answer
            else:
                self._report(name, "leyden_info", TypeError(f"leyden_info must give a PluginInfo, not {answer!r:.80}"))
        return found

    def instrument(self) -> None:
        """Install every plugin's hooks. Twice is once."""
        self.load()
        with self._lock:
            for implementation in self.manager.hook.leyden_instrument.get_hookimpls():
                name = implementation.plugin_name
                if name in self._undo:
                    continue
                try:
                    undo = cast("Undo | None", implementation.function())
                except Exception as error:
                    self._report(name, "leyden_instrument", error)
                    continue
                self._undo[name] = [] if undo is None else [undo]

    def uninstrument(self) -> None:
        """Take every plugin's hooks out again."""
        with self._lock:
            for name, undos in list(self._undo.items()):
                for undo in undos:
                    try:
                        undo()
                    except Exception as error:
                        self._report(name, "uninstrument", error)
                del self._undo[name]

    def identify(self) -> str | None:
        """The calling agent's path by the first adapter that knows it."""
        for implementation in reversed(self.manager.hook.leyden_identify.get_hookimpls()):
            try:
                path = implementation.function()
            except Exception as error:
                self._report(implementation.plugin_name, "leyden_identify", error)
                continue
            if path:
                return str(path)
        return None

    def discover(self, target: object) -> list[AgentInfo]:
        """The agents that any adapter finds in `target`."""
        self.load()
        return [agent for _, agent in self._items("leyden_discover", AgentInfo, target=target)]

    def span(self, span: Span) -> None:
        """Show a finished span to every plugin that looks at spans."""
        if self.manager.hook.leyden_span.get_hookimpls():
            for _ in self._each("leyden_span", span=span):
                pass

    def first(self, hook: str, *, passing: tuple[type[Exception], ...] = (), **arguments: Any) -> Any:
        """The first answer to `hook` that is not None; see `_each` for `passing`."""
        self.load()
        for _, answer in self._each(hook, passing=passing, **arguments):
            return answer
        return None

    def commands(self) -> list[Any]:
        """`click` commands of all plugins."""
        self.load()
        import click

        return [command for _, command in self._items("leyden_commands", click.Command)]

    def doctor(self) -> list[Check]:
        """Checks of all plugins, and one failed check for each plugin that did not load."""
        self.load()
        checks = [check for _, check in self._items("leyden_doctor", Check)]
        broken = [
            Check(name=f"plugin {name}", ok=False, detail=reason, remedy=f"pip install --upgrade leyden-{name}")
            for name, reason in self.failed.items()
        ]
        return checks + broken


plugins = Plugins()


def calling_agent() -> str:
    """The path of the agent that is making a call right now, "" for none: the one rule that every transport uses.

    The OTel context decides where it names an agent. Only where it names none (a thread that it was not carried into, a
    framework whose adapter cannot set it) the adapters are asked.
    """
    return current_agent() or plugins.identify() or ""


def instrument() -> None:
    """Install the hooks of all installed adapters in this process (idempotent), and carry the context into threads."""
    from opentelemetry.instrumentation.threading import ThreadingInstrumentor

    threading_instrumentor = ThreadingInstrumentor()
    if not threading_instrumentor.is_instrumented_by_opentelemetry:
        threading_instrumentor.instrument()
    plugins.instrument()


def uninstrument() -> None:
    """Take out every hook that `instrument` installed."""
    from opentelemetry.instrumentation.threading import ThreadingInstrumentor

    plugins.uninstrument()
    threading_instrumentor = ThreadingInstrumentor()
    if threading_instrumentor.is_instrumented_by_opentelemetry:
        threading_instrumentor.uninstrument()
