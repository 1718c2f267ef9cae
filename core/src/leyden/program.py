"""A program as the rollout function: each rollout runs an unmodified Python program as a process of its own.

The task reaches the program through placeholders in its arguments (`{question}`), as JSON on its standard input and as JSON
in `LEYDEN_TASK`. The reward is what a score function makes of the task and the program's standard output, or the number on
its last line.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from leyden.emit import emit_object
from leyden.errors import ConfigError, InvalidInput, LeydenError
from leyden.report import NO_REWARD
from leyden.scope import current_attempt
from leyden.target import Target, find, parse_target
from leyden.zero.parent import Recording, check_command
from leyden.zero.process import Process, how

VARIABLE = "LEYDEN_TASK"
VARIABLE_LIMIT = 100_000
"""Longest task in bytes that the variable holds; the system refuses a program with one above 131,071 bytes."""
OUTPUT_LIMIT = 64 * 2**20
"""Bytes of standard output that a score function is given at most; a program that prints more has failed."""
STOP_GRACE_S = 1.0
"""Seconds between SIGTERM and SIGKILL for a program whose time is up."""
TAIL = 400
"""Characters of the program's output that reasons and traces show."""

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_][\w.-]*)\}\}|\{([A-Za-z_][\w.-]*)\}")


class ProgramFailed(LeydenError, RuntimeError):
    """The program ended with an exit status that is not 0, or by a signal."""


class Program:
    """The rollout function that runs `command` (name and arguments) for a task.

    `score`: target of a function (task, standard output) → reward or None, say `score.py:score`; it may be async.
    `directory`: where the program runs (default: here). Raises `ConfigError` for what cannot be started or scored.

    A program that ends with another status than 0 fails its attempt, with the end of its standard error as the reason. At
    the end of its time, or when its attempt is over, its process group is ended.
    """

    def __init__(self, command: Sequence[str], *, score: str | None = None, directory: str | None = None) -> None:
        if not command:
            raise ConfigError("there is no program to run: write it behind --, say -- python app.py {question}")
        self.command = tuple(command)
        self.__qualname__ = shlex.join(command)
        self.directory = os.path.abspath(directory or ".")
        check_command(self.command)
        target = None if score is None else _score_target(score)
        self._score = None if target is None else _score(target)
        self.leyden_target = Target(
            attribute="Program",
            module="leyden.program",
            arguments={
                "command": list(self.command),
                "score": None if target is None else str(target),
                "directory": self.directory,
            },
            title=title(self.command),
        )

    def check_tasks(self, tasks: Sequence[Any], what: str = "tasks") -> None:
        """Raise `ConfigError` for a placeholder that not every task has a field for."""
        wanted = placeholders(self.command)
        for number, task in enumerate(tasks, 1):
            missing = [name for name in wanted if name not in _fields(task)]
            if missing:
                names = ", ".join(f"{{{name}}}" for name in missing)
                literally = f"write {{{{{missing[0]}}}}} where the braces are the program's own"
                raise ConfigError(
                    f"the arguments name {names}, which task {number} of {what} has no field for (it has: "
                    f"{', '.join(map(repr, _fields(task)))}); {literally}"
                )

    async def __call__(self, task: Any) -> float | None:
        """Run the program on `task`; returns the reward, or None where there is none."""
        scope = current_attempt()
        if scope is None:
            raise ConfigError("a Program runs in attempts only: give it to leyden.train or to a Runner")
        with Recording(scope, supervisor=os.getpid()) as recording:
            code, out = await self._run(recording, task)
            recording.check()
            if scope.failures:
                return None  # the attempt fails with the first of them
        if code != 0:
            raise ProgramFailed(": ".join(filter(None, (how(code), out.error))))
        value, why = await self._reward(task, out.text)
        if value is None and not recording.rewarded:
            emit_object(NO_REWARD, why)
        return value

    async def _run(self, recording: Recording, task: Any) -> tuple[int, _Output]:
        text = json.dumps(task)
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        if len(text) <= VARIABLE_LIMIT:
            environment[VARIABLE] = text
        with _Files(recording.directory, text) as files:
            process = Process(
                arguments(self.command, task),
                environment=recording.environment(environment),
                directory=self.directory,
                stdin=files.stdin,
                stdout=files.stdout,
                stderr=files.stderr,
                alone=True,
            )
            following = asyncio.ensure_future(recording.follow())
            code: int | None = None
            try:
                code = await process.wait()
            except BaseException:
                await process.stop(STOP_GRACE_S)
                raise
            finally:
                following.cancel()
                out = files.output()
                shown = {"stdout": out.text[-TAIL:], "stderr": out.error}
                emit_object("program", {"status": "its time was up" if code is None else how(code), **shown})
        if out.size > OUTPUT_LIMIT:
            raise ProgramFailed(f"it printed {out.size / 2**20:.0f} MiB, more than {OUTPUT_LIMIT >> 20}: print less")
        return code, out

    async def _reward(self, task: Any, text: str) -> tuple[float | None, str]:
        """The reward, or None and the reason why there is none."""
        if self._score is None:
            return number_of(text)
        value = await asyncio.to_thread(self._score, task, text)
        if inspect.isawaitable(value):
            value = await value
        return value, "the score function gave None"


class _Output:
    """What a program has printed so far."""

    def __init__(self, directory: Path) -> None:
        self.size = (directory / "stdout").stat().st_size
        self.text = _read(directory / "stdout")
        self.error = _read(directory / "stderr", at_most=4 * TAIL).strip()[-TAIL:]


def _read(path: Path, at_most: int = OUTPUT_LIMIT) -> str:
    """The end of a file as text."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - at_most))
        return file.read().decode("utf-8", errors="replace")


class _Files(AbstractContextManager["_Files"]):
    """Standard input, output and error of a program as files: nothing waits for who forgets to read or to close a pipe."""

    def __init__(self, directory: Path, text: str) -> None:
        self._directory = directory
        (directory / "stdin").write_text(text + "\n", encoding="utf-8")
        self.stdin: IO[bytes] = (directory / "stdin").open("rb")
        self.stdout: IO[bytes] = (directory / "stdout").open("wb")
        self.stderr: IO[bytes] = (directory / "stderr").open("wb")

    def output(self) -> _Output:
        return _Output(self._directory)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            file.close()


def title(command: Sequence[str]) -> str:
    """A short name of a program: `app` for `python app.py`, `python -m tools.app` and `./app`."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-m":
            return word.rsplit(".", 1)[-1]
        if word.endswith(".py"):
            return Path(word).stem
    return Path(command[0]).name


def placeholders(command: Sequence[str]) -> list[str]:
    """Names of the task's fields that the arguments name, each once."""
    found = (match[2] for word in command[1:] for match in _PLACEHOLDER.finditer(word))
    return list(dict.fromkeys(name for name in found if name))


def arguments(command: Sequence[str], task: Any) -> list[str]:
    """The command for one task: `{field}` is the field's value (text as it is, anything else as JSON), `{{field}}` is `{field}`.

    `{task}` is the whole task, unless it has a field of that name. Raises `InvalidInput` for a field that it lacks.
    """
    fields = _fields(task)

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        if match[2] not in fields:
            raise InvalidInput(
                f"the arguments name {match[0]}, which the task has no field for (it has: {', '.join(fields)})"
            )
        found = fields[match[2]]
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    return [command[0], *(_PLACEHOLDER.sub(value, word) for word in command[1:])]


def _fields(task: Any) -> dict[str, Any]:
    return (
        {"task": task, **{str(name): value for name, value in task.items()}}
        if isinstance(task, Mapping)
        else {"task": task}
    )


def number_of(text: str) -> tuple[float | None, str]:
    """The number on the last line of `text` that is not empty, or None and why there is none."""
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)
    if last is None:
        return None, "the program printed nothing"
    try:
        value = float(last)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in last:
        return None, f"the last line that the program printed is no number: {last[:60]!r}"
    return value, ""


def _score_target(text: str) -> Target:
    target = parse_target(text)
    return target if target.attribute else parse_target(f"{text}:score")


def _score(target: Target) -> Any:
    function = find(target)
    try:
        inspect.signature(function).bind(object(), "")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{target} must be a function of two arguments, the task and what the program printed ({error})"
        )
    return function
