"""One real vLLM server process on this machine, and the calls that verl and the trainer make on it.

No torch and no verl at import: the class that Ray hosts (`ServerHandle`) lives in a process that should stay small.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leyden.errors import LeydenError

DROPPED = ("RAY_", "VERL_", "TRANSFER_QUEUE", "LD_PRELOAD", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "PYTEST_")
DROPPED_EXACTLY = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class ServerError(LeydenError, RuntimeError):
    """The vLLM server died, did not start in time, or refused a call; the message holds the end of its log."""


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reserve(port: int) -> socket.socket:
    """Hold a TCP port of the loopback interface for a server that is starting. Raises `ServerError` if it is in use.

    The socket never listens, so the server (which sets SO_REUSEADDR) can bind beside it, and the system hands the port
    to nobody else meanwhile.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        held.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is in use by another program" if taken else f"cannot be used ({error})"
        raise ServerError(f"port {port} {why}: choose another one, or 0 for one that is free") from None
    return held


def call(
    address: str, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST", timeout: float = 600
) -> Any:
    """One HTTP call on `address` (``host:port``); returns the decoded JSON, or the text where the answer is no JSON."""
    data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
    request = urllib.request.Request(
        f"http://{address}{path}", data, {"content-type": "application/json"}, method=method
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: never through a proxy
    try:
        with opener.open(request, timeout=timeout) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        raise ServerError(f"{path} answered {error.code}: {error.read()[:500].decode(errors='replace')}") from None
    return json.loads(answer) if answer[:1] in (b"{", b"[") else answer.decode(errors="replace")


def server_environment(environ: Mapping[str, str], *, threads: int) -> dict[str, str]:
    """The environment of the server process: the caller's, without what belongs to the trainer's own distributed run."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(DROPPED) and name not in DROPPED_EXACTLY and not name.lower().endswith("_proxy")
    }
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # The weight-update calls are development endpoints without authentication: hence loopback only.
        "VLLM_SERVER_DEV_MODE": "1",
        # The engine in the API server's process: one process and one set of imports less.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # The first request for log-probs would compile a helper for 20 s.
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": str(threads),
        # Spinning threads collapse as soon as anything else wants the cores.
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
    }


def server_command(
    model: str,
    port: int,
    *,
    served_name: str = "policy",
    max_model_len: int,
    max_tokens: int | None = None,
    kv_bytes: int,
    max_num_seqs: int,
    block_size: int,
    seed: int = 0,
    trains: bool = True,
    extra: Sequence[str] = (),
) -> list[str]:
    """The command line of a server; `trains` adds what a policy needs whose weights change while it serves.

    `max_tokens` bounds every answer, `kv_bytes` is the size of the key-value cache, `block_size` its unit in tokens.
    """
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", served_name]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(max_model_len)]
    command += ["--kv-cache-memory-bytes", str(kv_bytes), "--max-num-seqs", str(max_num_seqs)]
    command += ["--block-size", str(block_size), "--seed", str(seed)]
    # The model's own generation_config.json would silently change the sampling distribution.
    command += ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs", "--disable-uvicorn-access-log"]
    if max_tokens is not None:
        command += ["--override-generation-config", json.dumps({"max_new_tokens": max_tokens})]
    if trains:
        command += ["--worker-extension-cls", "leyden_lightningrl.verl.cpu.vllm_extension.PolicyWorker"]
        command += ["--weight-transfer-config", '{"backend":"file"}']
    return command + list(extra)


GUARD = Path(__file__).with_name("guard.py")
GRACE_S = 10.0
"""Seconds that a server has to end by itself, before it and its engine are killed."""

PROCESSES: dict[str, ServerProcess] = {}
"""The servers that this process owns, by address."""


class ServerProcess:
    """Owns one vLLM server and every process below it: starts it, waits for it, ends it (by process id, never by name).

    `process` is the guard (see `guard.py`), which ends the server and its engine however the owner ends. Linux tells it
    of the end of the *thread* that made it, so it is made and waited for by a thread of its own.
    """

    def __init__(self, command: Sequence[str], port: int, log: Path, environment: Mapping[str, str]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self._port = reserve(port)
        self._made = threading.Event()
        self._error: BaseException | None = None
        self.started = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(list(command), dict(environment)), name=f"vllm-{port}", daemon=True
        )
        self._thread.start()
        self._made.wait()
        if self._error is not None:
            raise ServerError(f"the vLLM server could not be started: {self._error}") from self._error
        PROCESSES[self.address] = self

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        try:
            if shutil.which(command[0]) is None:
                raise FileNotFoundError(f"there is no program {command[0]!r}")
            guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(GRACE_S)]
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    guard + command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a terminal's Ctrl-C is for the owner, which ends the server in its turn
                )
        except BaseException as error:
            self._error = error
            self._port.close()
            return
        finally:
            self._made.set()
        self.process.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait_healthy(self, timeout: float = 600) -> float:
        """Block until the server answers; returns the seconds since its start. Raises `ServerError` if it dies."""
        while time.monotonic() - self.started < timeout:
            if self.ended is not None:
                self.wait_ended()
            try:
                call(self.address, "/health", method="GET", timeout=5)
                self._port.close()
                return time.monotonic() - self.started
            except (OSError, ServerError):
                self._thread.join(0.25)
        raise ServerError(f"the vLLM server was not ready after {timeout:.0f} s.\n{self.log_tail()}")

    @property
    def ended(self) -> int | None:
        """The server's exit status, None while it runs."""
        return None if self.process is None else self.process.poll()

    def wait_ended(self) -> None:
        """Block until the server ends by itself, then raise `ServerError`."""
        assert self.process is not None
        self.process.wait()
        raise ServerError(f"the vLLM server ended with status {self.process.returncode}.\n{self.log_tail()}")

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the server's log, and where the rest is."""
        try:
            tail = self.log.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            tail = []
        return "\n".join([f"End of {self.log}:", *tail])

    def stop(self) -> None:
        """End the server and everything below it; whatever is left after `GRACE_S` seconds is killed."""
        PROCESSES.pop(self.address, None)
        self._port.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def load_weights(address: str, path: str, version: int) -> None:
    """Make the server take the weights in `path`; no request runs on a mixture, no cached prefix outlives the change."""
    call(address, "/pause?mode=abort")
    call(address, "/start_weight_update")
    call(address, "/update_weights", {"update_info": {"path": path}})
    call(address, "/finish_weight_update", {"weight_version": str(version)})
    call(address, "/reset_prefix_cache")
    call(address, "/resume")


def prompt_logprobs(address: str, ids: Sequence[int], served_name: str = "policy") -> list[float]:
    """The server's log-probs of ids[1:], each given the ids before it (natural log, temperature 1)."""
    body = {"model": served_name, "prompt": list(ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    entries = call(address, "/v1/completions", body)["choices"][0]["prompt_logprobs"]
    return [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], entries[1:], strict=True)]


class ServerHandle:
    """What verl calls on a rollout server, for a server process that someone else owns. Hosted by Ray."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def _call(self, path: str) -> None:
        await asyncio.to_thread(call, self.address, path)

    async def ready(self) -> str:
        """Prepare the server for weight updates (once); returns its address."""
        await asyncio.to_thread(call, self.address, "/init_weight_transfer_engine", {"init_info": {}})
        return self.address

    async def sleep(self) -> None:
        """verl's word for: the trainer computes now. Requests that still run are aborted, new ones wait."""
        await self._call("/pause?mode=abort")

    async def wake_up(self) -> None:
        await self._call("/resume")

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        await self._call("/pause?mode=abort")

    async def resume_generation(self) -> None:
        await self._call("/resume")

    async def clear_kv_cache(self) -> None:
        await self._call("/reset_prefix_cache")

    async def release_kv_cache(self) -> None:
        """Nothing to release: a CPU server keeps its cache."""

    async def resume_kv_cache(self) -> None:
        """Nothing to resume, see `release_kv_cache`."""

    async def start_profile(self, **_: Any) -> None:
        """The CPU server has no profiler."""

    async def stop_profile(self, **_: Any) -> None:
        """The CPU server has no profiler."""

    async def generate(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        image_data: Any = None,
        video_data: Any = None,
        **_: Any,
    ) -> Any:
        """verl's token-in, token-out call, for code of verl's that samples by itself."""
        from verl.workers.rollout.replica import TokenOutput

        if image_data or video_data:
            raise NotImplementedError("the CPU rollout server takes text only")
        body = {
            "model": "policy",
            "prompt": list(prompt_ids),
            "max_tokens": sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens") or 16,
            "temperature": sampling_params.get("temperature", 1.0),
            "top_p": sampling_params.get("top_p", 1.0),
            "logprobs": 0,
            "return_token_ids": True,
        }
        choice = (await asyncio.to_thread(call, self.address, "/v1/completions", body))["choices"][0]
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=choice["logprobs"]["token_logprobs"],
            stop_reason="aborted" if choice["finish_reason"] == "abort" else "completed",
        )


def base_environment(threads: int) -> dict[str, str]:
    """`server_environment` of this process."""
    return server_environment(os.environ, threads=threads)
