"""The replaced functions of langgraph: the two that run one node, with its retries.

Why not callbacks: see `leyden_langchain.patches`. A node's `on_chain_end` comes in another context than its
`on_chain_start` when the graph runs async, and in the caller's own task where a step has one node, so a node that was
made current in a callback would stay so in the user's code after `ainvoke`.
"""

from __future__ import annotations

from leyden.patching import Patch, Patches
from leyden_langgraph.package import SUPPORTED
from leyden_langgraph.spans import node_arun, node_run

VERIFIED = "langgraph 0.6.0, 1.0.0, 1.2.24"
RUNNER = "langgraph.pregel._runner"

patches = Patches(
    adapter="langgraph",
    requires=SUPPORTED,
    patches=[
        Patch(RUNNER, "run_with_retry", node_run, "agents and spans of nodes", VERIFIED),
        Patch(RUNNER, "arun_with_retry", node_arun, "agents and spans of async nodes", VERIFIED),
    ],
)
