"""The hooks of this package: what it is for, and `leyden doctor`'s look at the environment."""

from __future__ import annotations

from leyden.hookspecs import Check, PluginInfo, hookimpl


class Plugin:
    """The plugin object of the entry point."""

    @hookimpl
    def leyden_info(self) -> PluginInfo:
        """What the plugin is for."""
        from leyden_lightningrl import __version__

        return PluginInfo(name="lightningrl", version=__version__)

    @hookimpl
    def leyden_doctor(self) -> list[Check]:
        """Whether a policy can be trained in this environment."""
        from leyden_lightningrl import environment

        device = "cuda" if environment.has_gpu() else "cpu"
        name = f"LightningRL on {device}"
        extra = "gpu" if device == "cuda" else "cpu"
        if missing := environment.missing(device):
            detail, remedy = f"not installed: {', '.join(missing)}", f"pip install 'leyden-lightningrl[{extra}]'"
            return [Check(name=name, ok=False, detail=detail, remedy=remedy)]
        found = environment.problems() if device == "cpu" else []
        if not found:
            return [Check(name=name, ok=True, detail=f"verl {environment.version('verl')}")]
        remedy = "python -m leyden_lightningrl.environment --fix"
        return [Check(name=name, ok=False, detail=problem.what, remedy=remedy) for problem in found]


plugin = Plugin()
