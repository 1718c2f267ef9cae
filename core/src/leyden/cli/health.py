"""`leyden plugins` and `leyden doctor`."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

import click

from leyden.hookspecs import Check


@click.command()
def plugins() -> None:
    """List the installed plugins, algorithms and stores, and what each one is for."""
    from leyden import algorithms
    from leyden.plugins import plugins as installed
    from leyden.report import table
    from leyden.stores import ENTRY_POINTS

    rows = [
        (name, info.version, info.framework or "-", ", ".join(info.requires) or "-", "ok")
        for name, info in sorted(installed.info().items())
    ]
    rows += [(name, "-", "-", "-", f"not loaded: {reason}") for name, reason in sorted(installed.failed.items())]
    for line in (
        table(("plugin", "version", "framework", "supports", "state"), rows) if rows else ["no plugins installed"]
    ):
        click.echo(line)
    known = ", ".join(f"{name} ({where})" for name, where in sorted(algorithms.installed().items()))
    click.echo(f"algorithms: {known or 'none (pip install leyden-lightningrl)'}")
    stores = {"memory", "sqlite", *(point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS))}
    click.echo(f"stores: {', '.join(sorted(stores))}")


def core_checks() -> list[Check]:
    """What the core itself needs."""
    import sqlite3

    version = ".".join(map(str, sys.version_info[:3]))
    walled = sqlite3.sqlite_version_info >= (3, 24)
    return [
        Check(name="python", ok=sys.version_info >= (3, 10), detail=f"{version} on {platform.platform()}"),
        Check(name="sqlite", ok=walled, detail=sqlite3.sqlite_version, remedy="use a Python with SQLite 3.24 or newer"),
    ]


@click.command()
def doctor() -> None:
    """Check what the installed plugins need; exit status 1 if something is wrong."""
    from leyden.plugins import plugins as installed

    checks = core_checks() + installed.doctor()
    for check in checks:
        click.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}".rstrip(": "))
        if not check.ok and check.remedy:
            click.echo(f"     → {check.remedy}")
    if not all(check.ok for check in checks):
        raise click.exceptions.Exit(1)
