"""Installing and taking out the hooks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import openai
import pytest

import leyden
from leyden.errors import RoutingError
from leyden.testing.recording import recorded_attempt
from leyden.testing.server import FakeModelServer
from leyden_openai import adapter
from leyden_openai.package import SUPPORTED
from leyden_openai.transport import patches

SYMBOLS = [patch.symbol for patch in patches.patches]


def run(code: str) -> Any:
    """The JSON that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_every_symbol_is_restored() -> None:
    from openai import _base_client

    def found() -> list[Any]:
        return [vars(getattr(_base_client, symbol.split(".")[0]))[symbol.split(".")[1]] for symbol in SYMBOLS]

    hooked = found()
    patches.remove()
    bare = found()
    assert not any(ours is theirs for ours, theirs in zip(hooked, bare, strict=True))
    adapter.leyden_instrument()()
    assert all(first is second for first, second in zip(bare, found(), strict=True))
    assert not patches.missing


def test_taken_out_hooks_do_nothing(client: openai.OpenAI) -> None:
    patches.remove()
    with recorded_attempt() as attempt:
        client.chat.completions.create(model="own", messages=[{"role": "user", "content": "a"}])
    assert not attempt.spans


def test_neither_importing_nor_instrumenting_imports_openai() -> None:
    code = """
import json, sys
import leyden_openai
leyden_openai.adapter.leyden_instrument()
early = sorted(name for name in sys.modules if name.split(".")[0] in ("openai", "httpx", "httpx2", "pydantic"))
import openai
print(json.dumps([early, hasattr(openai._base_client.SyncAPIClient.request, "__wrapped__")]))
"""
    assert run(code) == [[], True]


def test_it_works_without_openai() -> None:
    code = """
import json, sys
sys.modules["openai"] = None
import leyden
leyden.instrument()
print(json.dumps(leyden.plugins.plugins.failed))
"""
    assert run(code) == {}


def test_a_client_made_before_is_hooked_too(provider: FakeModelServer) -> None:
    adapter.leyden_instrument()()
    with openai.OpenAI(base_url=provider.base_url, api_key="x") as client:
        undo = adapter.leyden_instrument()
        with recorded_attempt() as attempt:
            client.chat.completions.create(model="own", messages=[{"role": "user", "content": "a"}])
        undo()
    assert len(attempt.calls) == 1


def test_other_requests_are_left_alone(client: openai.OpenAI, provider: FakeModelServer) -> None:
    with recorded_attempt() as attempt:
        assert [model.id for model in client.models.list().data] == ["policy"]
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="e", input="a")
    assert not attempt.spans
    assert len(provider.requests) == 2


def test_an_unsupported_version_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patches.remove()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.28.1")
    monkeypatch.setattr(patches, "_warned", False)
    adapter.leyden_instrument()()
    adapter.leyden_instrument()()
    assert len([record for record in caplog.records if "openai 0.28.1" in record.message]) == 1
    (check,) = adapter.leyden_doctor()
    assert not check.ok
    assert check.remedy == f"pip install '{SUPPORTED[0]}'"


def test_info_and_doctor() -> None:
    assert adapter.leyden_info().requires == SUPPORTED
    (check,) = adapter.leyden_doctor()
    assert check.ok
    assert openai.__version__ in check.detail


def test_a_marked_call_is_refused_where_the_sdk_lacks_a_hook(
    client: openai.OpenAI, provider: FakeModelServer, marked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "missing", ["openai._base_client.BaseClient._build_request"])
    messages: Any = [{"role": "user", "content": "a"}]
    with marked as attempt:
        client.chat.completions.create(model="own", messages=messages)
        with leyden.agent("writer"), pytest.raises(RoutingError, match=r"_build_request.*pip install"):
            client.chat.completions.create(model="own", messages=messages)
    assert len(provider.requests) == 1
    assert len(attempt.scope.failures) == 1
    assert attempt.llm[1].error
    (check,) = adapter.leyden_doctor()
    assert not check.ok
