"""`leyden rollouts`, `show`, `report` and `export`: reading what a store holds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from leyden.episode import Episode
from leyden.errors import ConfigError
from leyden.store import LightningStore
from leyden.types import Prompt, Rollout

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

STATUSES = ["queued", "running", "succeeded", "failed", "cancelled"]


def store_option(function: F) -> F:
    """`--store`: a URL, a database file, or the directory of a run; the newest run under `runs/` by default."""
    text = "URL, .db file or run directory (default: the newest run in runs/)."
    return click.option("--store", "where", metavar="STORE", help=text)(function)


def store_url(where: str | None) -> str:
    """The URL of the store that `--store` names. Raises `ConfigError` where there is none."""
    if where is None:
        runs = sorted(Path("runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime)
        if not runs:
            raise ConfigError("there is no run in runs/: give --store a URL, a .db file or the directory of a run")
        where = str(runs[-1].parent)
    path = Path(where)
    if path.is_dir():
        from leyden.run_directory import read_run

        url = read_run(path).get("store")
        return str(url) if url else store_url(str(path / "store.db"))
    from leyden.stores import absolute, file_of, scheme_of

    file = file_of(where)
    if (file is not None and not file.is_file()) or not scheme_of(where):  # looking at one must not make it
        raise ConfigError(f"there is no store {where!r}: give a URL, a .db file or the directory of a run")
    return absolute(where)


def _with_store(where: str | None, work: Callable[[LightningStore], Awaitable[T]]) -> T:
    from leyden.stores import open_store

    async def run() -> T:
        async with open_store(store_url(where)) as store:
            return await work(store)

    return asyncio.run(run())


async def _rollouts(store: LightningStore, **filters: Any) -> AsyncIterator[Rollout]:
    cursor: str | None = None
    while True:
        page = await store.rollouts(cursor=cursor, **filters)
        for rollout in page.items:
            yield rollout
        cursor = page.next
        if cursor is None:
            return


async def _episode(store: LightningStore, rollout: Rollout) -> Episode:
    from leyden.run import all_spans

    attempts = {attempt.id: attempt for attempt in await store.attempts([rollout.id])}
    attempt = attempts.get(rollout.attempt or "")
    spans = await all_spans(store, attempt.id) if attempt else ()
    return Episode(rollout=rollout, attempt=attempt, spans=spans)


async def _prompts(store: LightningStore, version: int | None) -> frozenset[str]:
    """Names of the policies that are prompts in a version of the resources."""
    policies = (await store.resources(version)).policies if version is not None else {}
    return frozenset(name for name, policy in policies.items() if isinstance(policy, Prompt))


def _filters(status: Sequence[str], mode: Sequence[str], group: str | None = None) -> dict[str, Any]:
    return {"status": list(status) or None, "mode": list(mode) or None, "group": group}


@click.command()
@store_option
@click.option("--status", multiple=True, type=click.Choice(STATUSES))
@click.option("--mode", multiple=True, type=click.Choice(["train", "val", "test"]))
@click.option("--group", help="Only the rollouts of one group.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--last", is_flag=True, help="The last ones instead of the first.")
def rollouts(
    where: str | None, status: Sequence[str], mode: Sequence[str], group: str | None, limit: int, last: bool
) -> None:
    """List rollouts with their rewards."""
    from leyden.report import table

    async def work(store: LightningStore) -> tuple[int, list[tuple[str, ...]]]:
        found: list[Rollout] = []
        total = 0
        async for rollout in _rollouts(store, **_filters(status, mode, group)):
            total += 1
            found.append(rollout)
            if len(found) > limit:
                found.pop(0 if last else -1)
        return total, [_row(await _episode(store, rollout)) for rollout in found]

    total, rows = _with_store(where, work)
    for line in table(("rollout", "mode", "status", "tries", "reward", "started", "task / reason"), rows):
        click.echo(line)
    click.echo(f"{len(rows)} of {total} rollouts")


def _row(episode: Episode) -> tuple[str, ...]:
    rollout = episode.rollout
    reward = "-" if episode.reward is None else f"{episode.reward:.4g}"
    when = time.strftime("%H:%M:%S", time.localtime(rollout.created_at))
    about = rollout.reason or json.dumps(rollout.task, ensure_ascii=False, default=str)
    return (rollout.id, rollout.mode, rollout.status, str(rollout.attempts), reward, when, _cut(about, 70))


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


@click.command()
@click.argument("rollout")
@store_option
@click.option("--tokens", is_flag=True, help="Show token ids and log-probs in full.")
@click.option("--width", type=click.IntRange(20), default=160, show_default=True, help="Characters of text per line.")
def show(rollout: str, where: str | None, tokens: bool, width: int) -> None:
    """Show one ROLLOUT as a tree: agents, calls with tokens, tools, rewards, errors."""
    from leyden.run import all_spans
    from leyden.tree import render_tree

    async def work(store: LightningStore) -> list[str]:
        found = (await store.rollouts(ids=[rollout])).items[0]
        lines = [f"rollout {found.id}  {found.mode}  {found.status}" + (f": {found.reason}" if found.reason else "")]
        lines.append(f"task {_cut(json.dumps(found.task, ensure_ascii=False, default=str), width)}")
        for attempt in await store.attempts([found.id]):
            spent = "" if attempt.ended_at is None else f"  {attempt.ended_at - attempt.started_at:.2f} s"
            why = f": {attempt.reason}" if attempt.reason else ""
            lines.append(f"attempt {attempt.number} by {attempt.worker}  {attempt.status}{spent}{why}")
            prompts = await _prompts(store, attempt.resources)
            lines += render_tree(await all_spans(store, attempt.id), tokens=tokens, width=width, prompts=prompts)
        return lines

    for line in _with_store(where, work):
        click.echo(line)


@click.command()
@store_option
@click.option("--mode", multiple=True, type=click.Choice(["train", "val", "test"]))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def report(where: str | None, mode: Sequence[str], as_json: bool) -> None:
    """The capture report: whose calls were seen, which are trainable, and why the others are not."""
    from leyden.report import CaptureReport, render

    async def work(store: LightningStore) -> CaptureReport:
        made = CaptureReport()
        known: dict[int | None, frozenset[str]] = {}
        async for rollout in _rollouts(store, **_filters(["succeeded", "failed", "cancelled"], mode)):
            episode = await _episode(store, rollout)
            version = episode.attempt.resources if episode.attempt else None
            if version not in known:
                known[version] = await _prompts(store, version)
            made.prompts = known[version]
            made.add_episode(episode)
        return made

    made = _with_store(where, work)
    click.echo(json.dumps(made.as_dict(), indent=2, ensure_ascii=False) if as_json else render(made))


@click.command()
@store_option
@click.option("--what", type=click.Choice(["episodes", "spans", "rollouts"]), default="episodes", show_default=True)
@click.option("--status", multiple=True, type=click.Choice(STATUSES))
@click.option("--mode", multiple=True, type=click.Choice(["train", "val", "test"]))
@click.option("-o", "--output", type=click.File("wb"), default="-", help="File to write (default: standard output).")
def export(where: str | None, what: str, status: Sequence[str], mode: Sequence[str], output: Any) -> None:
    """Write episodes, spans or rollouts as JSON Lines."""
    encode = msgspec.json.Encoder(enc_hook=str).encode

    async def work(store: LightningStore) -> int:
        count = 0
        async for rollout in _rollouts(store, **_filters(status, mode)):
            if what == "rollouts":
                items: Sequence[Any] = [rollout]
            else:
                episode = await _episode(store, rollout)
                items = [episode] if what == "episodes" else episode.spans
            for item in items:
                output.write(encode(item) + b"\n")
                count += 1
        return count

    click.echo(f"{_with_store(where, work)} {what} written", err=True)
