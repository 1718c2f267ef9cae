"""`opentelemetry-instrument`: each turn and each tool call is one span of the application's provider, not two."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leyden.testing.server import FakeModelServer

PROGRAM = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from leyden_autogen.instrumentor import AutogenInstrumentor
AutogenInstrumentor().instrument()

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

def search(query: str) -> str:
    "Search."
    return query

async def main():
    info = dict(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
    client = OpenAIChatCompletionClient(model="own", base_url=sys.argv[1], api_key="secret", model_info=info)
    writer = AssistantAgent("writer", model_client=client, tools=[search])
    await RoundRobinGroupChat([writer], max_turns=1).run(task="hello")
    await writer.run(task="hello")
    await client.close()

asyncio.run(main())
for span in exporter.get_finished_spans():
    if span.attributes.get("gen_ai.operation.name") in ("invoke_agent", "execute_tool"):
        print(span.name, sorted(key for key in span.attributes if key.startswith("gen_ai.tool.call")))
"""


@pytest.mark.parametrize("content", [False, True])
def test_one_span_of_each_thing(provider: FakeModelServer, content: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEN_DISABLE_RUNTIME_TRACING", "true")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", str(content).lower())
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, provider.base_url], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    shown = ["arguments", "id", "result"] if content else ["id"]
    tool = f"execute_tool search {[f'gen_ai.tool.call.{name}' for name in shown]}"
    assert ran.stdout.splitlines() == [tool, "invoke_agent writer []", "invoke_agent writer []"]
