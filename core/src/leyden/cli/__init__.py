"""The `leyden` command. Every error is one clear line and exit status 2; Ctrl-C is 130."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from leyden import __version__
from leyden.cli.health import doctor, plugins
from leyden.cli.inspect import export, report, rollouts, show
from leyden.cli.run import run
from leyden.cli.train import runner, train
from leyden.errors import LeydenError

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a disk that is full or must not be written, which are not ours and need no traceback."""


class Commands(click.Group):
    """The built-in commands, and those of plugins, which are loaded only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names for the help text."""
        return sorted({*super().list_commands(ctx), *self._added()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A built-in command, else a plugin's."""
        return super().get_command(ctx, cmd_name) or self._added().get(cmd_name)

    def _added(self) -> dict[str, click.Command]:
        from leyden.plugins import plugins as installed

        return {command.name: command for command in installed.commands() if command.name}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="leyden")
@click.option("-v", "--verbose", is_flag=True, help="Show the log of what Leyden does.")
def cli(verbose: bool) -> None:
    """Train the LLM agents you already have."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


for command in (train, run, runner, rollouts, show, report, export, plugins, doctor):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Entry point of the `leyden` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of another encoding gets "?", not a traceback
            stream.reconfigure(errors="replace")
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="leyden", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except LeydenError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt) as stop:
        code = getattr(stop.__cause__ or stop, "code", None)  # click makes an Abort of the run's own Interrupted
        sys.exit(code if isinstance(code, int) else 130)
    except BrokenPipeError:  # `leyden rollouts | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno not in DISK:
            raise
        click.echo(f"error: {error.filename or 'a file of the run'} cannot be written: {error.strerror}", err=True)
        sys.exit(2)
