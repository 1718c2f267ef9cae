"""Commands that take a program behind `--`."""

from __future__ import annotations

from typing import Any

import click

from leyden.errors import ConfigError

KEY = "program"


class WithProgram(click.Command):
    """A command whose function gets what stands behind the first `--` as `program`, a tuple; empty without a `--`.

    `wanted_by` names an option that needs a program, say `--auto`; without such an option the command itself does.
    """

    def __init__(self, *args: Any, wanted_by: str = "", usage: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wanted_by, self._usage = wanted_by, usage

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split at `--`, so that no option of the program is taken for one of ours."""
        own, dashes = args, False
        program: tuple[str, ...] = ()
        if "--" in args:
            place = args.index("--")
            own, dashes, program = args[:place], True, tuple(args[place + 1 :])
        names = {text.partition("=")[0] for text in own}
        free = names & {*ctx.help_option_names, "--resume"}  # a resumed run knows its program
        if not dashes and not free and (not self._wanted_by or self._wanted_by in names):
            hint = f"leyden {self.name} {f'{self._wanted_by} ' if self._wanted_by else ''}… -- python app.py"
            raise ConfigError(f"the program to run is missing: write it behind --, say {hint}")
        if dashes and not program:
            raise ConfigError("there is nothing behind --: write the program to run there, say -- python app.py")
        rest = super().parse_args(ctx, own)
        ctx.params[KEY] = program
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line."""
        return [self._usage] if self._usage else super().collect_usage_pieces(ctx)
