"""Span attribute names: OpenTelemetry GenAI semantic conventions where they exist, `leyden.*` for what they lack.

Source: open-telemetry/semantic-conventions-genai v0.1.0 (status: development).
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
"""JSON text: the messages as they were sent."""
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
"""JSON text: the assistant's message(s) as they came back."""
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
SERVER_ADDRESS: Final = "server.address"
ERROR_TYPE: Final = "error.type"

ROLLOUT: Final = "leyden.rollout"
ATTEMPT: Final = "leyden.attempt"
SEQUENCE: Final = "leyden.sequence"
AGENT: Final = "leyden.agent"
"""Path of the calling agent, say `planner/writer`."""
KIND: Final = "leyden.kind"
"""One of `leyden.types.SpanKind`."""
FRAMEWORK: Final = "leyden.framework"
HOLE: Final = "leyden.hole"
VALUE: Final = "leyden.value"
"""Payload of a message or object span, JSON text."""

CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
