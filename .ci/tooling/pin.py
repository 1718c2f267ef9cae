"""Writes a file of constraints anew: `python .ci/tooling/pin.py NAME…`, for adapters of that name, or `together`.

Takes the newest versions that the packages' own ranges allow, found by uv, whatever was pinned before.
"""

from __future__ import annotations

import subprocess
import sys

from environments import CONSTRAINTS, all_together, find_uv, light, pins

HEADS = {
    "together": "All adapters in one environment: the newest versions that fit together.",
    "": "The newest versions that this adapter was tested with, where they do not go with latest.txt.",
}


def wanted(name: str) -> list[str]:
    """What the environment needs from outside this repository."""
    from packages import packages

    environment = all_together() if name == "together" else light(packages()[name], "latest")
    arguments = iter(environment.arguments)
    return [argument for argument in arguments if not (argument in ("-c", "-e") and next(arguments))]


def pinned(requirements: list[str]) -> str:
    """The requirements and all that they stand on, as `name==version` lines."""
    uv = find_uv()
    if uv is None:
        raise SystemExit("uv is needed: pip install uv")
    command = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "--python", sys.executable]
    command += [*pins("tools"), "-"]
    text = "\n".join(requirements)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """The command line."""
    for name in sys.argv[1:]:
        path = CONSTRAINTS / ("together.txt" if name == "together" else f"latest-{name}.txt")
        head = f"# {HEADS.get(name, HEADS[''])}\n# Written by: python .ci/tooling/pin.py {name}\n"
        path.write_text(head + pinned(wanted(name)))


if __name__ == "__main__":
    main()
