"""One attempt in this process: runs the rollout function on a task inside the attempt's scope, and judges how it ended."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leyden import attributes, tracing
from leyden.emit import emit_reward
from leyden.rollout_function import is_async
from leyden.scope import AttemptScope, attempt_scope
from leyden.types import Claim, Outcome

_HERE = str(Path(__file__).parent)


class AgentExited(RuntimeError):
    """The agent called `sys.exit`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended. `outcome` is None where the store has decided already and nothing is to be reported."""

    outcome: Outcome | None
    reason: str | None = None


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """An attempt that runs in this process."""

    claim: Claim
    scope: AttemptScope
    given_up: asyncio.Future[Verdict] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    work: asyncio.Future[Any] | None = None
    in_thread: bool = False

    @property
    def id(self) -> str:
        """The attempt's id."""
        return self.claim.attempt.id

    def give_up(self, verdict: Verdict) -> None:
        """End the attempt as `verdict`, whatever the agent is doing."""
        if not self.given_up.done():
            self.given_up.set_result(verdict)

    async def run(self, function: Callable[[Any], Any], grace_s: float) -> Verdict:
        """Run `function` on the task until it ends, its time is up, or `give_up` is called."""
        if self.given_up.done():  # the worker was told to stop before it began
            return self.given_up.result()
        start = _start_coroutine if is_async(function) else _start_thread
        self.in_thread = start is _start_thread
        self.work = work = start(self.scope, function)
        limit = self.claim.rollout.timeout_s
        try:
            await asyncio.wait({work, self.given_up}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.give_up(Verdict("unresponsive", "the worker was stopped"))
        if work.done():
            return judge(self.scope, work)
        self.give_up(Verdict("timeout", f"the agent ran over its limit of {limit or 0:g} s"))
        if self.in_thread:  # a thread cannot be stopped from outside; it ends when it likes, unrecorded
            self.scope.closed = True
        else:
            work.cancel()
            await asyncio.wait({work}, timeout=grace_s)
            self.scope.closed = True
            if work.done() and not work.cancelled():
                work.exception()  # seen, so that asyncio does not complain
        return self.given_up.result()

    @property
    def stuck(self) -> bool:
        """Whether the agent is still running though its attempt is over."""
        return self.work is not None and not self.work.done()


def judge(scope: AttemptScope, work: asyncio.Future[Any]) -> Verdict:
    """The verdict on an agent that has ended by itself."""
    error: BaseException | None
    if work.cancelled():
        error = None if not scope.failures else scope.failures[0]
        reason = describe(error) if error else "the agent was cancelled by its own code"
        return Verdict("failed", reason)
    error = scope.failures[0] if scope.failures else work.exception()
    return Verdict("succeeded") if error is None else Verdict("failed", describe(error))


def _start_coroutine(scope: AttemptScope, function: Callable[[Any], Any]) -> asyncio.Future[Any]:
    async def body() -> None:
        with attempt_scope(scope), tracing.span("rollout", "rollout"), _Recorded():
            _reward(scope, await function(scope.rollout.task))

    return asyncio.get_running_loop().create_task(body())


def _start_thread(scope: AttemptScope, function: Callable[[Any], Any]) -> asyncio.Future[Any]:
    """Run a plain function in a thread of its own. The thread is a daemon: a hung one must not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(None)

    def body() -> None:
        error: BaseException | None = None
        try:
            with attempt_scope(scope), tracing.span("rollout", "rollout"), _Recorded():
                value = function(scope.rollout.task)
                if hasattr(value, "__await__"):  # a plain function that hands on a coroutine
                    value = asyncio.run(_awaited(value))
                _reward(scope, value)
        except BaseException as caught:
            error = caught if isinstance(caught, Exception) else AgentExited(f"the agent ended with {caught!r}")
            if isinstance(error, StopIteration):  # a future cannot hold one
                error = RuntimeError("the agent raised StopIteration")
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:  # the worker is gone already
            pass

    threading.Thread(target=body, name=f"leyden-{scope.attempt_id}", daemon=True).start()
    return done


async def _awaited(value: Any) -> Any:
    return await value


def _reward(scope: AttemptScope, value: Any) -> None:
    """Record what the function returned as the rollout's reward. None is a missing reward, not 0."""
    if value is not None and not scope.failures:
        emit_reward(value)


class _Recorded:
    """Records an exception as a span on its way out, and keeps `sys.exit` in an agent from ending the worker."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            record_exception(error)
        elif isinstance(error, SystemExit):
            exited = AgentExited(f"the agent called sys.exit({error.code!r})")
            record_exception(exited)
            raise exited from error


def record_exception(error: BaseException) -> None:
    """Record what ended the attempt, with its traceback, as an exception span."""
    text = "".join(traceback.format_exception(error))[-8000:]
    given = {attributes.KIND: "exception", attributes.VALUE: tracing.json_text({"traceback": text})}
    opened = tracing.tracer().start_span("exception", attributes=given)
    tracing.fail(opened, error)
    opened.end()


def describe(error: BaseException) -> str:
    """One line for a reason: type, message, and the place in the user's code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_HERE, "<frozen "))]
    where = f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:600]}{where}" if text else f"{type(error).__name__}{where}"
