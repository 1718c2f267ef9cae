"""The rollout manager: what it says of rollouts that cannot be used (needs torch and the TransferQueue, no server)."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leyden.errors import RolloutsFailed
from leyden_lightningrl.config import make_settings

pytestmark = pytest.mark.heavy
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)


async def manager_of(reason: str) -> Any:
    from leyden_lightningrl.verl.manager import RolloutManager

    async def publish(policies: Any) -> None:
        return None

    async def rollout(*_: Any, **__: Any) -> None:
        raise RolloutsFailed(f"all 2 rollouts failed: {reason}")

    settings = make_settings({"model": "m", "max_prompt_tokens": 60, "max_response_tokens": 4})
    made = RolloutManager(SimpleNamespace(publish=publish, rollout=rollout), settings, policy="default", model="m")  # type: ignore[arg-type]
    made.addresses = ["127.0.0.1:1"]
    return made


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (
            "Error code: 400 - This model's maximum context length is 64 tokens.",
            "= 60 \\+ 4 tokens: raise max_prompt_tokens",
        ),
        ("ValueError: no", "no$"),
    ],
)
def test_prompts_that_are_too_long_name_the_setting(reason: str, remedy: str) -> None:
    async def run() -> None:
        await (await manager_of(reason))._episodes([1, 2], 1, "train", 0)

    with pytest.raises(RolloutsFailed, match=remedy):
        asyncio.run(run())


def test_a_server_that_died_is_named_with_the_failures(tmp_path: Path) -> None:
    from leyden_lightningrl.verl.cpu import server

    log = tmp_path / "vllm-0.log"
    died = server.ServerProcess([sys.executable, "-c", "import sys; sys.exit(7)"], server.free_port(), log, {})
    assert died.process is not None
    died.process.wait()

    async def run() -> None:
        await (await manager_of("Connection error."))._episodes([1, 2], 1, "train", 0)

    try:
        with pytest.raises(RolloutsFailed, match=rf"The vLLM server ended with status 7: {log} says why"):
            asyncio.run(run())
    finally:
        died.stop()


def test_rewards_that_teach_nothing_are_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> Any:
        made = await manager_of("")
        for count in (0, 3, 2):
            made._tell_unused(count)
        return made

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run()).unused_rewards == 5
    (record,) = caplog.records
    assert "3 others of this step" in record.getMessage()
