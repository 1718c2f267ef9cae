"""Serve a model folder (a base model, or a trained policy) on this machine's CPU: `python -m leyden_lightningrl.serve`.

On a GPU machine `vllm serve FOLDER` does the same; on a CPU vLLM needs the settings that are made here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leyden.errors import LeydenError
from leyden_lightningrl import models


@contextmanager
def served(
    model: str | Path,
    *,
    name: str = "model",
    port: int = 0,
    context: int = 2048,
    kv_bytes: int = 256 << 20,
    max_sequences: int = 64,
    threads: int | None = None,
    log: str | Path | None = None,
    tool_parser: str | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[str]:
    """Run a vLLM server on loopback for the time of the block; yields its base URL (ends in `/v1`) once it answers.

    `port` 0 takes a free one. `context` is in tokens, `kv_bytes` the size of the key-value cache. `tool_parser` (vLLM's
    name for the way in which the model writes tool calls, say "hermes") lets the server turn what is written so into
    tool calls. The server ends with the block, or with this process. Raises `LeydenError` for a folder that is no model,
    `ServerError` if vLLM fails.
    """
    from leyden_lightningrl.verl.cpu import server

    folder = models.model_folder(str(model))
    if folder is not None:
        models.check_context(models.check_model(folder), context, folder)
    port = port or server.free_port()
    command = server.server_command(
        str(folder or model),
        port,
        served_name=name,
        max_model_len=context,
        kv_bytes=kv_bytes,
        max_num_seqs=max_sequences,
        block_size=32,
        trains=False,
        extra=[*tool_arguments(tool_parser), *arguments],
    )
    server.reserve(port).close()  # before anything is made
    if log is None:
        handle, path = tempfile.mkstemp(prefix=f"leyden-{name}-", suffix=".log")
        os.close(handle)
        log = path
    cores = threads or len(os.sched_getaffinity(0))
    process = server.ServerProcess(command, port, Path(log), server.base_environment(cores))
    try:
        process.wait_healthy()
        yield f"http://{process.address}/v1"
    finally:
        process.stop()


def tool_arguments(parser: str | None) -> list[str]:
    """What vLLM is told so that it finds tool calls in what a model writes; nothing without a parser."""
    return [] if parser is None else ["--enable-auto-tool-choice", "--tool-call-parser", parser]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: serves until Ctrl-C or SIGTERM; returns the exit status of an error."""
    parser = argparse.ArgumentParser(prog="python -m leyden_lightningrl.serve", description=__doc__)
    parser.add_argument("model", help="a Hugging Face model folder")
    parser.add_argument("--name", default="model", help="the model's name in requests")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--context", type=int, default=2048, help="context length in tokens")
    parser.add_argument("--kv-bytes", type=int, default=256 << 20, help="size of the key-value cache")
    parser.add_argument("--tool-parser", help="vLLM's name for how the model writes tool calls, say hermes")
    options = parser.parse_args(arguments)
    from leyden_lightningrl.verl.cpu import server

    def end(*_: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)  # unwinds the block below, also out of a start that takes a minute

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    try:
        with served(
            options.model,
            name=options.name,
            port=options.port,
            context=options.context,
            kv_bytes=options.kv_bytes,
            tool_parser=options.tool_parser,
        ) as url:
            print(f"serving {options.model} as {options.name!r} at {url}; Ctrl-C ends it", flush=True)
            server.PROCESSES[urlsplit(url).netloc].wait_ended()
    except (LeydenError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
