"""The conformance suite of framework adapters: a small two-agent app, and every test that an adapter must pass.

    class App(AgentApp):
        async def run(self, question): ...      # planner is asked, then writer, who has the tool `lookup`

    class TestMyFramework(AdapterSuite):
        plugin = "my-framework"                 # name of the entry point in the group leyden.plugins
        app = App
        instrumentor = MyFrameworkInstrumentor
        lacks = {"cached": "the framework has no response cache"}

pytest and pytest-asyncio are needed. What the app can do is found by what it implements; what it cannot do has to be said in
`lacks`, with the reason. An inherited test can be overridden only as a strict xfail with a reason. Everything runs on fake
model servers; where `LEYDEN_TEST_VLLM` names the origin of a real vLLM server (`http://host:port`, model `policy`, with a tool
parser), the tests that a real server can serve run on it, and the others are skipped.
"""

from __future__ import annotations

import pytest

_PARTS = ("base", "identity", "capture", "routing", "harmless", "endurance")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from leyden.testing.adapter.app import (  # noqa: E402
    CAPABILITIES,
    PLANNER,
    PLANNER_NAME,
    WRITER,
    WRITER_NAME,
    AgentApp,
    ModelAccess,
    lookup,
)
from leyden.testing.adapter.suite import AdapterSuite  # noqa: E402

__all__ = [
    "CAPABILITIES",
    "PLANNER",
    "PLANNER_NAME",
    "WRITER",
    "WRITER_NAME",
    "AdapterSuite",
    "AgentApp",
    "ModelAccess",
    "lookup",
]
