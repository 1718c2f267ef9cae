"""A worker process: loads the user's function, opens the store and runs a `Runner` until it is told to stop.

It is started by `leyden.supervisor` with two pipes. On the status pipe it writes a JSON line per event: `ready`, a
`beat` while its event loop turns, `fatal` with a reason where starting again would not help. The control pipe carries
the settings as its first line; its end of file says stop, and is also what a worker sees when its supervisor dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from leyden.errors import LeydenError, StoreUnavailable
from leyden.target import Target
from leyden.types import Mode, Struct

BEAT_S = 0.5
STOP_GRACE_S = 8.0
"""Seconds that a worker has to hand back its rollouts once it was told to stop."""

REPLACE_ME = 10
FATAL = 11


class WorkerSettings(Struct, frozen=True):
    """What a worker is told. `target` is None under `fork`, where the function is in memory already."""

    store: str
    supervisor: int
    """Process id of the supervisor; a worker with another parent ends."""
    target: Target | None = None
    concurrency: int = 16
    lease_s: float = 30.0
    modes: tuple[Mode, ...] | None = None
    instrument: bool = True
    path: tuple[str, ...] = ()
    """Import path of the supervisor."""


class Status:
    """The worker's end of the status pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, **event: Any) -> None:
        """Write one event; a supervisor that is gone is no reason to fail."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(event).encode() + b"\n")


def die_with(supervisor: int) -> None:
    """End this process when its supervisor dies, also by SIGKILL (Linux; elsewhere the control pipe's end does it)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, see prctl(2)
    if os.getppid() != supervisor:
        os._exit(0)


def prepare_signals() -> None:
    """Leave Ctrl-C to the supervisor, and take over nothing from a forked parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run_worker(
    settings: WorkerSettings, status: Status, control: int, function: Callable[[Any], Any] | None = None
) -> int:
    """Work until told to stop; returns the exit status."""
    try:
        function = function or _load(settings)
    except LeydenError as error:
        status.send(fatal=str(error))
        return FATAL
    except Exception as error:
        from leyden.attempt import describe

        status.send(fatal=f"the file of the rollout function cannot be loaded in a worker: {describe(error)}")
        return FATAL
    try:
        return asyncio.run(_work(settings, status, control, function))
    except StoreUnavailable as error:
        print(f"leyden worker {os.getpid()}: {error}", file=sys.stderr)
        return 1
    except LeydenError as error:
        status.send(fatal=str(error))
        return FATAL


def _load(settings: WorkerSettings) -> Callable[[Any], Any]:
    from leyden.plugins import instrument
    from leyden.target import load

    if settings.instrument:
        instrument()
    assert settings.target is not None
    return load(settings.target)


async def _work(settings: WorkerSettings, status: Status, control: int, function: Callable[[Any], Any]) -> int:
    from leyden.runner import Runner
    from leyden.stores import open_store

    loop = asyncio.get_running_loop()
    store = await open_store(settings.store)
    try:
        runner = Runner(
            store,
            function,
            concurrency=settings.concurrency,
            lease_s=settings.lease_s,
            modes=settings.modes,
            replaceable=True,
        )
        loop.add_signal_handler(signal.SIGTERM, runner.stop)
        threading.Thread(
            target=_stop_at_end_of_file, args=(control, loop, runner.stop), name="leyden-control", daemon=True
        ).start()
        status.send(ready=os.getpid())
        beats = asyncio.create_task(_beat(status))
        await runner.run()
        beats.cancel()
        return REPLACE_ME if runner.hung else 0
    finally:
        await store.close()


async def _beat(status: Status) -> None:
    while True:
        status.send(beat=1)
        await asyncio.sleep(BEAT_S)


def _stop_at_end_of_file(control: int, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    while True:
        try:
            if not os.read(control, 4096):
                break
        except InterruptedError:
            continue
        except OSError:
            break
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(stop)
    time.sleep(STOP_GRACE_S)
    os._exit(1)  # the event loop is blocked or the store does not answer


def leave(code: int) -> NoReturn:
    """End the process now: threads of a hung agent must not keep it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _read_line(descriptor: int) -> bytes:
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def main() -> None:
    """Entry of a spawned worker; its arguments are two inherited pipe descriptors, control and status."""
    prepare_signals()
    control, status = int(sys.argv[1]), Status(int(sys.argv[2]))
    line = _read_line(control)
    if not line:
        leave(0)
    settings = msgspec.json.decode(line, type=WorkerSettings)
    die_with(settings.supervisor)
    sys.argv = [settings.target.file or str(settings.target.module)] if settings.target else sys.argv[:1]
    leave(run_worker(settings, status, control))
