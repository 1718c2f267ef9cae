"""One real vLLM server on the scripted model, for all sessions of a run that want it; it ends with nox."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from pathlib import Path

import nox

from environments import ROOT, heavy

_running: dict[int, str] = {}


def scripted_server(session: nox.Session, letters: int = 6) -> str:
    """Origin (`http://host:port`) of the server; starts it where it does not run yet (half a minute).

    `letters`: how many letters of the model's own choice end a text, see `integration-tests/scripted_model.py`.
    """
    if letters not in _running:
        _running[letters] = _start(heavy(session), letters)
    return _running[letters]


def _start(python: str, letters: int) -> str:
    folder = tempfile.TemporaryDirectory(prefix="leyden-scripted-")
    atexit.register(folder.cleanup)
    program = str(ROOT / "integration-tests" / "scripted_model.py")
    command = [python, program, str(Path(folder.name) / "model"), "--port=0", f"--letters={letters}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    log = open(Path(folder.name) / "log.txt", "w")  # noqa: SIM115 - the server's, for as long as it runs
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    atexit.register(_stop, server)
    assert server.stdout is not None
    for line in server.stdout:  # ends when the server does
        if line.startswith("serving "):
            return line.split(" at ")[1].split("/v1")[0]
    raise RuntimeError(f"the scripted server did not start: {Path(log.name).read_text()[-3000:]}")


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait()
