"""The replaced functions of miniflow: it has no events."""

from __future__ import annotations

from leyden.patching import Patch, Patches
from leyden_miniflow.package import SUPPORTED
from leyden_miniflow.spans import run, stream, tool

VERIFIED = "miniflow 1.2"

patches = Patches(
    adapter="miniflow",
    requires=SUPPORTED,
    patches=[
        Patch("miniflow", "Agent.run", run, "agents and their spans", VERIFIED),
        Patch("miniflow", "Agent.stream", stream, "agents and their spans in streams", VERIFIED),
        Patch("miniflow", "call_tool", tool, "spans of tools", VERIFIED),
    ],
)
