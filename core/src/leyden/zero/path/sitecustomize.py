"""Sets up Leyden as a Python process starts, where `PYTHONPATH` has this folder. See `leyden.zero`.

Python imports the first `sitecustomize` on its path. This one stands before the environment's own, which is run first, and
takes itself off `sys.path`; `PYTHONPATH` stays, so that the program's own Python processes are set up too. Any Python may
come by here, of an old version or without Leyden: nothing is imported before that is known.
"""

import importlib
import os
import sys


def _next() -> None:
    """Run the `sitecustomize` that this one stands before."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if own is not None:  # Python wants to find one here
            sys.modules.setdefault("sitecustomize", own)


def _start(spool: str) -> None:
    """Make this process part of the attempt whose directory is `spool`."""
    try:
        from leyden.zero.child import start
    except ImportError as error:
        _without_leyden(spool, f"leyden cannot be imported by {sys.executable} ({error})")
    else:
        start(spool)


def _without_leyden(spool: str, problem: str) -> None:
    """Go on without Leyden; refuse to where agents are marked and this is the program itself.

    A later process without Leyden is a tool in an environment of its own: it has none of the program's agents.
    """
    try:
        os.close(os.open(os.path.join(spool, "first"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return
    problem += "; install leyden and its plugins there, or start the program with the Python that has them"
    if os.path.exists(os.path.join(spool, "marked")):
        with open(os.path.join(spool, "refused"), "w") as file:
            file.write(problem)
        sys.stderr.write(f"leyden: agents are marked, so the program is not started: {problem}\n")
        sys.stderr.flush()
        os._exit(78)  # EX_CONFIG of sysexits.h; an exception would be Python's own fatal error here
    sys.stderr.write(f"leyden: the program is not recorded: {problem}\n")


_spool = os.environ.get("LEYDEN_SPOOL")
try:
    _next()
finally:
    if _spool:
        _start(_spool)
