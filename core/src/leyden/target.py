"""Where a rollout function is defined, so that another process can load it: `train.py:solve` or `package.module:solve`.

A worker runs the user's file again from the top. A call of `leyden.train` at its module level ends the loading right
there, without an error: everything above the call is defined, and no second training starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from leyden.errors import ConfigError
from leyden.rollout_function import check_function, is_rollout, name_of
from leyden.types import Struct

_LOADING: ContextVar[bool] = ContextVar("leyden-loading", default=False)
_FILES: dict[str, str] = {}
"""Files that were loaded by path, by the module name that they got."""


class LoadingStopped(BaseException):
    """Raised by `train` while a file is loaded for its definitions alone. Not an `Exception`, so that no `except` in the
    user's file takes it for a failure."""


class Target(Struct, frozen=True):
    """A module (by `file` or by `module` name) and the dotted name of the function in it."""

    attribute: str
    """Empty for the one function that is decorated with `@leyden.rollout`."""
    file: str | None = None
    module: str | None = None
    arguments: dict[str, Any] | None = None
    """Where they are given, what `attribute` names is called with them to make the function."""
    title: str = ""
    """A short name for directories, where the module's will not do."""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.attribute}"

    @property
    def name(self) -> str:
        """A short name for directories."""
        return self.title or (Path(self.file).stem if self.file else str(self.module).rsplit(".", 1)[-1])


def loading() -> bool:
    """Whether a user's file is being loaded for its definitions alone."""
    return _LOADING.get()


def parse_target(text: str) -> Target:
    """`file.py:function`, `file.py` (its decorated function) or `package.module:function`."""
    place, _, attribute = text.rpartition(":") if ":" in text else (text, "", "")
    if not place:
        raise ConfigError(f"{text!r} is no target: write file.py:function or package.module:function")
    if place.endswith(".py") or "/" in place:
        return Target(attribute=attribute, file=str(Path(place).resolve()))
    if all(part.isidentifier() for part in place.split(".")):
        return Target(attribute=attribute, module=place)
    raise ConfigError(f"{text!r} is no target: write file.py:function or package.module:function")


def target_of(function: Callable[..., Any]) -> Target:
    """Where `function` can be loaded from in another process: what it says itself (`leyden_target`), or where it is defined.

    Raises `ConfigError` where that is nowhere.
    """
    own = getattr(function, "leyden_target", None)
    if isinstance(own, Target):
        return own
    name, module = name_of(function), getattr(function, "__module__", None)
    remedy = "define it at the top level of a file, or use processes=0 or method='fork'"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"worker processes cannot load {name}: {remedy}")
    if module in _FILES:
        return Target(attribute=name, file=_FILES[module])
    loaded = sys.modules.get(module or "")
    if module == "__main__":
        spec = getattr(loaded, "__spec__", None)
        if spec is not None and spec.name:
            return Target(attribute=name, module=spec.name.removesuffix(".__main__") if spec.name else None)
        file = getattr(loaded, "__file__", None)
        if not file or not Path(file).is_file():
            raise ConfigError(f"worker processes cannot load {name} from an interactive session: {remedy}")
        return Target(attribute=name, file=str(Path(file).resolve()))
    if not module or loaded is None:
        raise ConfigError(f"worker processes cannot load {name}: {remedy}")
    return Target(attribute=name, module=module)


def load(target: Target) -> Callable[..., Any]:
    """Import the target's module and return its rollout function. Raises `ConfigError` where there is none."""
    module = _load(target)
    function: Callable[..., Any] = _attribute(module, target) if target.attribute else _decorated(module, target)
    if target.arguments is not None:
        function = function(**target.arguments)
    check_function(function)
    return function


def find(target: Target) -> Any:
    """What `attribute` names in the target's module, whatever it is. Raises `ConfigError` where there is nothing."""
    return _attribute(_load(target), target)


def _load(target: Target) -> ModuleType:
    with _definitions_only() as stopped:
        return _load_file(target.file, stopped) if target.file else _load_module(str(target.module), stopped)


def _attribute(module: ModuleType, target: Target) -> Any:
    found: Any = module
    for part in target.attribute.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, [key for key in dir(found) if not key.startswith("_")], n=1)
            hint = f"did you mean {close[0]!r}?" if close else "define it above the call of leyden.train"
            raise ConfigError(f"{target.file or target.module} has no {target.attribute!r}: {hint}")
        found = getattr(found, part)
    return found


@contextmanager
def _definitions_only() -> Iterator[list[ModuleType]]:
    stopped: list[ModuleType] = []
    token = _LOADING.set(True)
    try:
        yield stopped
    finally:
        _LOADING.reset(token)


def _load_file(file: str, stopped: list[ModuleType]) -> ModuleType:
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"there is no file {file}")
    for name, known in _FILES.items():
        if known == file:
            return sys.modules[name]
    name = path.stem if path.stem.isidentifier() and _is_free(path.stem, path) else f"leyden_target_{path.stem}"
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(_behind_the_standard_library(), folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name], _FILES[name] = module, file
    try:
        spec.loader.exec_module(module)
    except LoadingStopped:
        stopped.append(module)
    except BaseException:
        sys.modules.pop(name, None)
        _FILES.pop(name, None)
        raise
    return module


def _behind_the_standard_library() -> int:
    """The place in the import path for a user's folder: a `queue.py` in it must not stand in for the standard library's."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    places = [place for place, folder in enumerate(sys.path) if folder in own or Path(folder).name == "lib-dynload"]
    return places[-1] + 1 if places else 0


def _is_free(name: str, path: Path) -> bool:
    """Whether the file may be imported as `name` without hiding another module."""
    if name in sys.modules or name in sys.stdlib_module_names:
        return False
    spec = importlib.util.find_spec(name)
    return spec is None or (spec.origin is not None and Path(spec.origin).resolve() == path)


def _load_module(name: str, stopped: list[ModuleType]) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None:
        return known
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"there is no module {name!r} ({error})")
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"there is no module {name!r} on the import path; give the file instead: path/to/file.py:name"
        )
    try:
        return importlib.import_module(name)
    except LoadingStopped:  # the import system has taken the half-made module out again: run it by hand
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except LoadingStopped:
            stopped.append(module)
        return module


def _decorated(module: ModuleType, target: Target) -> Callable[..., Any]:
    found = {name: value for name, value in vars(module).items() if is_rollout(value)}
    if len(set(map(id, found.values()))) != 1:
        say = f"has {len(found)} functions decorated with @leyden.rollout ({', '.join(found) or 'none'})"
        raise ConfigError(f"{target.file or target.module} {say}; name the one to run: {target}<function>")
    return next(iter(found.values()))  # type: ignore[no-any-return]
