"""The server process: how it is started, waited for, and ended. The program here is a stand-in; vLLM itself is in
`test_training.py`."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leyden_lightningrl.verl.cpu import server

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def do_POST(self):
        self.send_response(409); self.end_headers(); self.wfile.write(b"not now")
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def start(tmp_path: Path, program: str) -> server.ServerProcess:
    port = server.free_port()
    command = [sys.executable, "-c", program, str(port)]
    return server.ServerProcess(command, port, tmp_path / "server.log", dict(os.environ))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_waits_calls_and_stops(tmp_path: Path) -> None:
    process = start(tmp_path, HEALTHY)
    try:
        assert process.wait_healthy(30) > 0
        assert server.call(process.address, "/health", method="GET") == "ok"
        with pytest.raises(server.ServerError, match="/pause answered 409: not now"):
            server.call(process.address, "/pause")
        assert server.PROCESSES[process.address] is process
    finally:
        process.stop()
    assert gone(process.pid)
    assert process.address not in server.PROCESSES


def test_a_server_that_dies_says_why(tmp_path: Path) -> None:
    process = start(tmp_path, "import sys; print('no such model', file=sys.stderr); sys.exit(3)")
    with pytest.raises(server.ServerError, match=r"ended with status 3(.|\n)*no such model"):
        process.wait_healthy(30)
    process.stop()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(server.ServerError, match="could not be started"):
        server.ServerProcess([str(tmp_path / "none")], 1, tmp_path / "server.log", {})


def test_the_server_dies_with_its_owner(tmp_path: Path) -> None:
    owner = f"""
import sys, time
from pathlib import Path
from leyden_lightningrl.verl.cpu import server
port = server.free_port()
process = server.ServerProcess([sys.executable, "-c", {HEALTHY!r}, str(port)], port, Path({str(tmp_path / "log")!r}), {{}})
process.wait_healthy(30)
print(process.pid, flush=True)
time.sleep(600)
"""
    running = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    assert not gone(pid)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    deadline = time.monotonic() + 30
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(pid)


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
engine = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('ready', flush=True); time.sleep(600)"], start_new_session=True, stdout=subprocess.PIPE)
engine.stdout.readline()
print(os.getpid(), engine.pid, flush=True)
time.sleep(600)
"""
"""A server and its engine, as stubborn as they can be: neither heeds SIGTERM, and the engine has left the group."""


def family(log: Path) -> tuple[int, int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if log.exists() and log.read_text().endswith("\n"):
            server_pid, engine_pid = map(int, log.read_text().split())
            return server_pid, engine_pid
        time.sleep(0.02)
    raise AssertionError("the program did not start")


def all_gone(*pids: int) -> bool:
    deadline = time.monotonic() + 30
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return all(map(gone, pids))


def test_stopping_ends_the_engine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 0.2)
    process = start(tmp_path, FAMILY)
    pids = family(process.log)
    assert not any(map(gone, pids))
    process.stop()
    assert all_gone(*pids)


def test_the_engine_does_not_outlive_a_server_that_was_killed(tmp_path: Path) -> None:
    process = start(tmp_path, FAMILY)
    server_pid, engine_pid = family(process.log)
    os.kill(server_pid, signal.SIGKILL)
    assert all_gone(server_pid, engine_pid, process.pid)
    with pytest.raises(server.ServerError, match="ended with status 137"):
        process.wait_healthy(30)
    process.stop()


def test_the_engine_does_not_outlive_an_owner_that_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    owner = f"""
import time
from pathlib import Path
from leyden_lightningrl.verl.cpu import server
server.GRACE_S = 0.2
process = server.ServerProcess([{sys.executable!r}, "-c", {FAMILY!r}], server.free_port(), Path({str(log)!r}), {{}})
print(process.pid, flush=True)
time.sleep(600)
"""
    running = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    guard = int(running.stdout.readline())
    pids = family(log)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert all_gone(guard, *pids)


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    process = start(tmp_path, HEALTHY)
    try:
        process.wait_healthy(30)
        port = int(process.address.rpartition(":")[2])
        with pytest.raises(server.ServerError, match=f"port {port} is in use by another program: choose another one"):
            server.ServerProcess([sys.executable, "-c", HEALTHY, str(port)], port, tmp_path / "second.log", {})
        assert not (tmp_path / "second.log").exists()
    finally:
        process.stop()
    with pytest.raises(server.ServerError, match="port 99999 cannot be used"):
        server.ServerProcess([sys.executable], 99999, tmp_path / "log", {})


def test_a_port_is_held_until_the_server_has_it(tmp_path: Path) -> None:
    port = server.free_port()
    process = server.ServerProcess([sys.executable, "-c", "import time; time.sleep(600)"], port, tmp_path / "log", {})
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    finally:
        process.stop()


def test_the_environment_leaves_the_trainers_own_out() -> None:
    made = server.server_environment(
        {"PATH": "/bin", "RANK": "1", "RAY_ADDRESS": "x", "http_proxy": "p", "VERL_PLATFORM": "cpu"}, threads=3
    )
    assert made["PATH"] == "/bin"
    assert made["OMP_NUM_THREADS"] == "3"
    assert not {"RANK", "RAY_ADDRESS", "http_proxy", "VERL_PLATFORM"} & made.keys()


def test_command_line() -> None:
    command = server.server_command(
        "/m", 9, max_model_len=128, max_tokens=16, kv_bytes=1 << 20, max_num_seqs=4, block_size=32, extra=["--x"]
    )
    values = dict(itertools.pairwise(command))
    assert values["--host"] == "127.0.0.1"
    assert values["--logprobs-mode"] == "processed_logprobs"
    assert json.loads(values["--override-generation-config"]) == {"max_new_tokens": 16}
    assert values["--worker-extension-cls"].endswith("PolicyWorker")
    assert command[-1] == "--x"
    untrained = server.server_command(
        "/m", 9, max_model_len=128, kv_bytes=1, max_num_seqs=1, block_size=32, trains=False
    )
    assert "--worker-extension-cls" not in untrained
