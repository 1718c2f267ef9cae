"""`leyden train` and `leyden runner`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from leyden.cli.program import WithProgram
from leyden.errors import ConfigError, LeydenError

if TYPE_CHECKING:
    from leyden.program import Program
    from leyden.target import Target

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPTIONS = ("seed", "store", "processes", "concurrency", "method", "timeout", "max_attempts", "on_failed", "no_runner")
"""Options that say how to run; a resumed run keeps those that it was started with."""

COMMAND = "command"
"""Key of `run.json` under which `leyden train` keeps what it was given, for `--resume`."""


@click.command(
    cls=WithProgram, wanted_by="--auto", usage="[OPTIONS] TARGET | [OPTIONS] --auto -- PROGRAM [ARGUMENTS]..."
)
@click.argument("target", required=False)
@click.option(
    "--auto", is_flag=True, help="Each rollout runs the unmodified program behind --, instrumented from outside."
)
@click.option("--score", metavar="TARGET", help="With --auto: the function (task, what was printed) → reward.")
@click.option(
    "--train", "marked", multiple=True, metavar="AGENT[=POLICY]", help="Mark an agent for training; repeatable."
)
@click.option("--tasks", metavar="FILE", help="Training tasks: .jsonl, .json, .csv or .txt.")
@click.option("--val-tasks", multiple=True, metavar="[NAME=]FILE", help="Held-out tasks; repeatable, with names.")
@click.option("--algorithm", metavar="NAME", help="An installed algorithm (default: lightningrl).")
@click.option("--model", metavar="NAME", help="Short for --set model=NAME.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the algorithm; repeatable.")
@click.option("--directory", type=click.Path(path_type=Path), help="Of the run (default: runs/<name>-<time>).")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIRECTORY", help="Go on with the run in DIRECTORY.")
@click.option("--store", metavar="URL", help="Default: SQLite in the run's directory.")
@click.option("--processes", type=click.IntRange(0), default=1, show_default=True, help="Worker processes; 0: none.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Rollouts at once per process."
)
@click.option("--method", type=click.Choice(["spawn", "fork"]), default="spawn", show_default=True)
@click.option(
    "--timeout", type=float, default=600.0, show_default=True, help="Seconds that one attempt may take; 0: any."
)
@click.option("--max-attempts", type=click.IntRange(1), default=3, show_default=True)
@click.option("--on-failed", type=click.Choice(["drop", "keep", "retry"]), default="drop", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--no-runner", is_flag=True, help="Start no workers: `leyden runner` does the work elsewhere.")
def train(target: str | None, **given: Any) -> None:
    """Train the marked agents that the function TARGET (file.py:function) runs, or with --auto an unmodified program.

    With --auto each rollout starts the program behind --. It gets the task in the place of {field} in its arguments, as
    JSON on its standard input and in LEYDEN_TASK; the reward is the number on the last line that it prints, or what --score
    says. With --resume, what is not given is taken from the run.
    """
    from leyden import algorithms, marks
    from leyden.config import parse_assignments
    from leyden.run_directory import default_directory, read_run
    from leyden.stores import absolute
    from leyden.target import target_of
    from leyden.training import train as start

    resume: Path | None = given["resume"]
    if resume is not None and given["directory"] not in (None, resume):
        raise ConfigError(
            f"--resume {resume} and --directory {given['directory']} name two directories; give --resume alone"
        )
    _check_auto(target, given)
    command = {
        "target": target and _target(target),
        "program": list(given["program"]),
        "score": given["score"] and str(_score(given["score"])),
        "directory": os.getcwd() if given["program"] else None,
        "train": list(given["marked"]),
        "tasks": given["tasks"] and os.path.abspath(given["tasks"]),
        "val_tasks": {name: os.path.abspath(path) for name, path in _task_sets(list(given["val_tasks"])).items()},
        "algorithm": given["algorithm"],
        "settings": _settings(parse_assignments(given["settings"]), given["model"]),
        "options": {name: given[name] for name in OPTIONS if _was_given(name) or resume is None},
    }
    if "store" in command["options"] and given["store"]:
        command["options"]["store"] = absolute(given["store"])
    if resume is not None:
        command = _with_what_was_given_before(command, read_run(resume).get(COMMAND, {}))
    function = _function(command)
    for mark in command["train"]:
        selector, _, policy = mark.partition("=")
        marks.registry.add(selector, policy or "default")
    how = {name: given[name] for name in OPTIONS} | command["options"]
    directory = resume or given["directory"]
    if directory is None and command["program"]:  # worker processes or not, it is named after the program
        directory = default_directory(target_of(function).name)
    start(
        function,
        tasks=command["tasks"],
        val_tasks=command["val_tasks"] or None,
        algorithm=algorithms.make(command["algorithm"], command["settings"]),
        directory=directory,
        resume=resume is not None,
        timeout_s=how.pop("timeout") or None,
        external_runners=how.pop("no_runner"),
        command={COMMAND: command},
        **how,
    )


def _check_auto(target: str | None, given: dict[str, Any]) -> None:
    if given["program"] and not given["auto"]:
        raise ConfigError("a program behind -- needs --auto: leyden train --auto … -- python app.py")
    if given["auto"] and target:
        raise ConfigError(f"give TARGET ({target}) or --auto with a program behind --, not both")
    if given["score"] and not given["auto"] and not given.get("resume"):
        raise ConfigError("--score belongs to --auto; a function gives its reward itself")


def _score(text: str) -> Target:
    from leyden.target import parse_target

    where = parse_target(text)
    return where if where.attribute else parse_target(f"{text}:score")


def _function(command: dict[str, Any]) -> Callable[..., Any]:
    """The rollout function: of TARGET, or the program; its placeholders are checked against all tasks."""
    from leyden.target import parse_target
    from leyden.tasks import load_tasks

    if not command["target"] and not command["program"]:
        raise ConfigError("leyden train needs TARGET (file.py:function), or --auto and a program behind --")
    if not command["tasks"]:
        raise ConfigError("leyden train needs --tasks FILE")
    if not command["program"]:
        return _load(parse_target(command["target"]))
    program = _program(command["program"], command["score"], command["directory"])
    for name, path in {"": command["tasks"], **command["val_tasks"]}.items():
        program.check_tasks(load_tasks(path), os.path.basename(path) if not name else f"{name} ({path})")
    return program


def _program(command: list[str], score: str | None, directory: str | None = None) -> Program:
    from leyden.program import Program

    return _guarded(score and _score(score), lambda: Program(command, score=score, directory=directory))


def _load(where: Target) -> Callable[..., Any]:
    """The function, with whatever the user's file raises as one line that names the place; `-v` shows the traceback."""
    from leyden.target import load

    return _guarded(where, lambda: load(where))


def _guarded(where: Target | Literal[""] | None, loading: Callable[[], T]) -> T:
    from leyden.attempt import describe

    try:
        return loading()
    except LeydenError:
        raise
    except Exception as error:
        logger.info("the traceback of %s", where, exc_info=error)
        name = where and (where.file or where.module)
        raise ConfigError(f"{name} cannot be loaded: {describe(error)}") from error


def _was_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _with_what_was_given_before(command: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """`command`, completed by what the run was started with; of settings and options each one by itself."""
    merged = {key: value or before.get(key, value) for key, value in command.items()}
    for key in ("settings", "options"):
        merged[key] = {**(before.get(key) or {}), **command[key]}
    return merged


def _target(text: str) -> str:
    """The target as it can be found from any folder."""
    from leyden.target import parse_target

    where = parse_target(text)
    return str(where) if where.attribute or where.module else str(where.file)


def _settings(settings: dict[str, Any], model: str | None) -> dict[str, Any]:
    if model is not None and settings.setdefault("model", model) != model:
        raise ConfigError(
            f"--model {model} and --set model={settings['model']} contradict each other; give one of them"
        )
    name = settings.get("model")
    if isinstance(name, str) and Path(name).is_dir():  # so that the run can be resumed from any folder
        settings["model"] = os.path.abspath(name)
    return settings


def _task_sets(texts: list[str] | None) -> dict[str, str]:
    sets: dict[str, str] = {}
    for text in texts or []:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = "val", text
        if name in sets:
            raise ConfigError(f"--val-tasks {name!r} is given twice; name the sets: --val-tasks NAME=FILE")
        sets[name] = path
    return sets


@click.command(
    cls=WithProgram, wanted_by="--auto", usage="[OPTIONS] TARGET | [OPTIONS] --auto -- PROGRAM [ARGUMENTS]..."
)
@click.argument("target", required=False)
@click.option("--auto", is_flag=True, help="Run the unmodified program behind --; see leyden train --help.")
@click.option("--score", metavar="TARGET", help="With --auto: the function (task, what was printed) → reward.")
@click.option("--store", required=True, metavar="URL", help="The store to take work from.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), default=16, show_default=True)
@click.option("--method", type=click.Choice(["spawn", "fork"]), default="spawn", show_default=True)
@click.option(
    "--lease", type=float, default=30.0, show_default=True, help="Seconds until a dead worker's work is redone."
)
def runner(
    target: str | None, store: str, processes: int, concurrency: int, method: str, lease: float, **given: Any
) -> None:
    """Run the function TARGET (file.py:function), or a program, on what a store hands out, until Ctrl-C."""
    from leyden.cli.inspect import store_url
    from leyden.stores import check_url
    from leyden.target import parse_target, target_of
    from leyden.workers import Workers

    _check_auto(target, given)
    if not target and not given["auto"]:
        raise ConfigError("leyden runner needs TARGET (file.py:function), or --auto and a program behind --")
    if Path(store).is_dir():
        store = store_url(store)
    check_url(store)
    if target:
        where = parse_target(target)
        if not where.attribute or method == "spawn":
            _load(where)  # say now what every worker would say
    else:
        where = target_of(_program(list(given["program"]), given["score"]))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, lambda *_: stop.set())
    workers = Workers(
        where,
        store,
        processes=processes,
        concurrency=concurrency,
        method=method,  # type: ignore[arg-type]
        lease_s=lease,
    )
    with workers:
        click.echo(
            f"running {target or ' '.join(given['program'])} for {store} in {processes} processes; Ctrl-C ends it"
        )
        while not stop.wait(0.5):
            workers.check()
        click.echo("stopping: unfinished rollouts go back to the queue", err=True)
    sys.exit(0)
