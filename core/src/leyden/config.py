"""Settings: `--set key=value`, and validation whose errors name the key that was meant."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

import msgspec

from leyden.errors import ConfigError

T = TypeVar("T")

_UNKNOWN = re.compile(r"unknown field `(?P<field>[^`]+)`(?: - at `\$(?P<path>[^`]*)`)?")


def parse_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """`["lora.rank=8", "model=x"]` → `{"lora": {"rank": 8}, "model": "x"}`. Values are JSON where they can be, else text."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise ConfigError(f"--set {text!r}: write key=value, with dots for nested keys (--set lora.rank=8)")
        here = settings
        for name in names[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                raise ConfigError(f"--set {text!r}: {name!r} was set to a value before, it has no keys")
        if names[-1] in here:
            raise ConfigError(f"--set {key.strip()} is given twice")
        here[names[-1]] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def unknown_key(key: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a key that nobody knows, with the one that was probably meant."""
    names = sorted(known)
    close = get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ConfigError(f"{where} has no setting {key!r}.{hint} It has: {', '.join(names) or 'none'}")


def convert(settings: Mapping[str, Any], kind: type[T], where: str = "the configuration") -> T:
    """`settings` as an instance of the msgspec struct `kind`; unknown keys and wrong types are a `ConfigError`."""
    _check_keys(settings, kind, where)
    try:
        return msgspec.convert(dict(settings), kind, strict=True)
    except msgspec.ValidationError as error:
        found = _UNKNOWN.search(str(error))
        if found:
            raise ConfigError(f"{where} has no setting {(found['path'] or '').lstrip('.')}.{found['field']}")
        raise ConfigError(f"{where}: {error}")


def _check_keys(settings: Mapping[str, Any], kind: type, where: str) -> None:
    """Look for unknown keys, also in nested structs, before msgspec does: it does not know which one was meant."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in settings.items():
        if key not in fields:
            raise unknown_key(key, fields, where)
        if isinstance(value, Mapping):
            nested = _struct_in(fields[key].type)
            if nested is not None:
                _check_keys(value, nested, f"{where}, {key}")


def _struct_in(annotation: Any) -> type | None:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def construct(factory: Callable[..., T], settings: Mapping[str, Any], where: str) -> T:
    """`factory(**settings)` with an unknown or missing keyword as a `ConfigError` that names the close one."""
    if isinstance(factory, type) and issubclass(factory, msgspec.Struct):
        return cast("T", convert(settings, factory, where))
    make = cast("Callable[..., T]", factory)
    parameters = inspect.signature(make).parameters.values()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for key in settings:
        if key not in known and not open_ended:
            raise unknown_key(key, known, where)
    missing = [p.name for p in parameters if p.name in known and p.default is p.empty and p.name not in settings]
    if missing:
        raise ConfigError(f"{where} needs {', '.join(missing)}: pass --set {missing[0]}=…")
    return make(**settings)
