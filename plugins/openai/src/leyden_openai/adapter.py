"""The hooks that leyden-openai implements. Nothing here imports openai."""

from __future__ import annotations

import importlib.metadata

from leyden.hookspecs import Check, PluginInfo, Undo, hookimpl
from leyden.patching import outside
from leyden_openai.package import SUPPORTED


class Adapter:
    """The plugin object of the entry point."""

    @hookimpl
    def leyden_info(self) -> PluginInfo:
        """What the plugin is for."""
        return PluginInfo(
            name="openai",
            version=importlib.metadata.version("leyden-openai"),
            framework="openai",
            requires=SUPPORTED,
            imports=("openai",),
        )

    @hookimpl
    def leyden_instrument(self) -> Undo:
        """Hook the SDK, now or when it is imported."""
        from leyden_openai.transport import patches

        return patches.install()

    @hookimpl
    def leyden_doctor(self) -> list[Check]:
        """Whether the installed SDK is one that was tested."""
        try:
            version = importlib.metadata.version("openai")
        except importlib.metadata.PackageNotFoundError:
            return [Check(name="openai SDK", ok=True, detail="not installed")]
        from leyden_openai.transport import patches

        problem = outside(SUPPORTED)
        if patches.missing:
            problem = f"openai {version} lacks {', '.join(patches.missing)}: a marked agent's calls cannot be routed"
        remedy = "" if problem is None else f"pip install '{SUPPORTED[0]}'"
        return [Check(name="openai SDK", ok=problem is None, detail=problem or f"openai {version}", remedy=remedy)]
