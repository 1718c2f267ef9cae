"""Prints the versions of installed distributions as JSON: `python versions.py NAME…`, with the Python that is asked.

Run by environments' own Pythons, hence the standard library alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys


def versions(names: list[str]) -> dict[str, str]:
    """Version of each distribution that is installed, and of Python."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    print(json.dumps(versions(sys.argv[1:])))
