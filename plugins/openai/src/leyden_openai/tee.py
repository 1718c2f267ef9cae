"""Tees: read along a response body that the agent consumes, without holding anything back, and record it at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from leyden_openai.call import Call, decode

_DONE = b"data: [DONE]\n"
"""Ends a stream of the OpenAI API. A line break cannot stand inside JSON, so this is never part of a text."""
_EARLY = "the stream was closed early"


class Copy:
    """The bytes of one body so far. `end` records them once."""

    def __init__(self, call: Call, events: bool, decompress: Callable[[bytes], bytes] | None = None) -> None:
        self._call = call
        self._events = events
        self._decompress = decompress
        self._parts: list[bytes] = []
        self._held = b""
        self._filter = events and call.hides_usage

    def take(self, part: bytes) -> bytes:
        """Keep a copy of `part`; returns what the agent gets of it: all, or all but the usage that it did not ask for."""
        self._parts.append(part)
        passed = self._without_usage(part) if self._filter else part
        if self._events and _DONE in part:
            self.end()
        return passed

    def rest(self) -> bytes:
        """What is left to pass on when the server has sent everything."""
        held, self._held = self._held, b""
        return held

    def _without_usage(self, part: bytes) -> bytes:
        """Cut the usage event out; an event that is not whole yet is kept back (no reader could use it either)."""
        data = self._held + part
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._held = data
            return b""
        whole, self._held = data[:end], data[end:]
        if b'"usage"' not in whole:
            return whole
        return b"".join(event for event in _split(whole) if not _is_usage(event))

    def end(self, cut: str | None = None, error: BaseException | None = None, *, quiet: bool = False) -> None:
        """The body is over: whole, or cut off for the reason given. `quiet` keeps `MissingTokenIds` from being raised."""
        call = self._call
        if call.done:
            return
        content = b"".join(self._parts)
        self._parts.clear()
        try:
            if self._decompress is not None:
                content = self._decompress(content)
        except Exception as problem:
            content, cut = b"", cut or f"the compressed answer could not be read: {problem}"
        try:
            if not self._events and cut is not None:
                call.failed(error or ConnectionError(cut))
            else:
                call.answered(content, self._events, cut, error)
        except Exception:
            if not quiet:
                raise


def _split(events: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in events.split(b"\n\n")[:-1]]


def _is_usage(event: bytes) -> bool:
    """Whether an event is the one that holds usage and nothing else."""
    if not event.startswith(b"data:") or b'"usage"' not in event:
        return False
    try:
        chunk = decode(event[5:].strip())
    except ValueError:
        return False
    return isinstance(chunk, dict) and bool(chunk.get("usage")) and not chunk.get("choices")


def _broke(error: BaseException) -> str:
    return f"the stream broke: {type(error).__name__}: {error}"


class _SyncTee:
    """Reads along a synchronous body."""

    def __init__(self, inner: Any, copy: Copy) -> None:
        self._inner = inner
        self._copy = copy

    def __iter__(self) -> Iterator[bytes]:
        copy = self._copy
        try:
            for part in self._inner:
                passed = copy.take(part)
                if passed:
                    yield passed
            if rest := copy.rest():
                yield rest
        except GeneratorExit:
            copy.end(_EARLY, quiet=True)
            raise
        except BaseException as error:
            copy.end(_broke(error), error, quiet=True)
            raise
        copy.end()

    def close(self) -> None:
        """Close the body; one that was not read to its end is cut off."""
        try:
            self._inner.close()
        finally:
            self._copy.end(_EARLY, quiet=True)

    def __del__(self) -> None:
        self._copy.end(_EARLY, quiet=True)


class _AsyncTee:
    """Reads along an asynchronous body."""

    def __init__(self, inner: Any, copy: Copy) -> None:
        self._inner = inner
        self._copy = copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        copy = self._copy
        try:
            async for part in self._inner:
                passed = copy.take(part)
                if passed:
                    yield passed
            if rest := copy.rest():
                yield rest
        except GeneratorExit:
            copy.end(_EARLY, quiet=True)
            raise
        except BaseException as error:
            copy.end(_broke(error), error, quiet=True)
            raise
        copy.end()

    async def aclose(self) -> None:
        """Close the body; one that was not read to its end is cut off."""
        try:
            await self._inner.aclose()
        finally:
            self._copy.end(_EARLY, quiet=True)

    def __del__(self) -> None:
        self._copy.end(_EARLY, quiet=True)


_classes: dict[tuple[type[Any], type[Any]], Any] = {}


def _tee_class(inner: type[Any], kind: type[Any]) -> Any:
    """A tee that the HTTP library of `inner` (httpx, or httpx2 from openai 3 on) takes for a byte stream of its own."""
    made = _classes.get((inner, kind))
    if made is None:
        name = "SyncByteStream" if kind is _SyncTee else "AsyncByteStream"
        base = next((base for base in inner.__mro__ if base.__name__ == name), object)
        made = _classes[inner, kind] = type(kind.__name__.strip("_"), (kind, base), {})
    return made


def tee(response: Any, call: Call, events: bool) -> Any:
    """A stream that passes the body of `response` on and records it for `call`."""
    inner, encoding = response.stream, response.headers.get("content-encoding")

    def decompress(content: bytes) -> bytes:
        return bytes(type(response)(200, headers={"content-encoding": encoding}, content=content).content)

    kind = _AsyncTee if hasattr(inner, "__aiter__") else _SyncTee
    return _tee_class(type(inner), kind)(inner, Copy(call, events, decompress if encoding else None))
