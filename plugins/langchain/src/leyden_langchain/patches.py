"""The replaced methods of langchain-core.

Why not its callbacks: an agent has to be current in the OpenTelemetry context while it runs and not a moment longer.
`on_chain_end` and its like are run by langchain-core in a task of their own with a copy of the context (`shielded` in
`callbacks/manager.py`), so whatever `on_chain_start` made current would stay so in the caller. Nor do callbacks tell a
run name that the user gave from a default one, and abandoned streams end no run.
"""

from __future__ import annotations

from leyden.patching import Function, Patch, Patches
from leyden_langchain.identity import named_run
from leyden_langchain.package import SUPPORTED
from leyden_langchain.spans import tool_arun, tool_run
from leyden_langchain.stand_in import swapped, text_model

VERIFIED = "langchain-core 0.3.68, 1.0.7, 1.8.3"

_CALLS = ("invoke", "ainvoke", "stream", "astream")
_TRANSFORMS = ("transform", "atransform")
_BATCHES = ("batch", "abatch")

NAMED: dict[tuple[str, str], tuple[str, ...]] = {
    ("langchain_core.runnables.base", "RunnableSequence"): (*_CALLS, *_TRANSFORMS, *_BATCHES),
    ("langchain_core.runnables.base", "RunnableParallel"): (*_CALLS, *_TRANSFORMS),
    ("langchain_core.runnables.base", "RunnableLambda"): (*_CALLS, *_TRANSFORMS),
    ("langchain_core.runnables.base", "RunnableGenerator"): (*_CALLS, *_TRANSFORMS),
    ("langchain_core.runnables.branch", "RunnableBranch"): _CALLS,
    ("langchain_core.runnables.fallbacks", "RunnableWithFallbacks"): (*_CALLS, *_BATCHES),
    ("langchain_core.runnables.passthrough", "RunnableAssign"): (*_CALLS, *_TRANSFORMS),
}
"""Public methods that read a run name from their config."""


def _chat_model(original: Function) -> Function:
    """A chat model's call: named first, so that the stand-in is that of the named agent."""
    return named_run(swapped(original))


_TOOLS = "langchain_core.tools.base"

patches = Patches(
    adapter="langchain",
    requires=SUPPORTED,
    patches=[
        Patch(_TOOLS, "BaseTool.run", tool_run, "spans of tools", VERIFIED),
        Patch(_TOOLS, "BaseTool.arun", tool_arun, "spans of async tools", VERIFIED),
        *(
            Patch(module, f"{name}.{method}", named_run, f"run names of {name}", VERIFIED)
            for (module, name), methods in NAMED.items()
            for method in methods
        ),
        *(
            Patch(
                "langchain_core.language_models.chat_models",
                f"BaseChatModel.{method}",
                _chat_model,
                "run names of chat models, and stand-ins for those of other protocols",
                VERIFIED,
            )
            for method in _CALLS
        ),
        *(
            Patch(
                "langchain_core.language_models.chat_models",
                f"BaseChatModel.{method}",
                swapped,
                "stand-ins for chat models that are called below `invoke`",
                VERIFIED,
            )
            for method in ("generate", "agenerate")
        ),
        *(
            Patch(
                "langchain_core.language_models.llms",
                f"BaseLLM.{method}",
                text_model,
                "the refusal of a marked agent's text model",
                VERIFIED,
            )
            for method in ("generate", "agenerate", "stream", "astream")
        ),
    ],
)
