"""The whole suite, and the check that nothing of it is dropped."""

from __future__ import annotations

from typing import Any

from leyden.testing.adapter.app import CAPABILITIES, capabilities
from leyden.testing.adapter.capture import CaptureRules
from leyden.testing.adapter.endurance import EnduranceRules
from leyden.testing.adapter.harmless import HarmlessRules
from leyden.testing.adapter.identity import IdentityRules
from leyden.testing.adapter.routing import RoutingRules


class AdapterSuite(IdentityRules, CaptureRules, RoutingRules, HarmlessRules, EnduranceRules):
    """All rules. Subclass it with `plugin`, `app`, `instrumentor` and `lacks`; see `leyden.testing.adapter`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse, when the class is made, one that drops a test or leaves a capability unexplained."""
        super().__init_subclass__(**kwargs)
        for name in dir(AdapterSuite):
            if name.startswith("test_") and getattr(cls, name, None) is not getattr(AdapterSuite, name):
                _check_override(cls, name)
        if (app := getattr(cls, "app", None)) is not None:
            lacks = dict(cls.lacks)
            if not lacks.pop("instrumentor", None) and cls.instrumentor is None:
                raise TypeError(f"{cls.__name__} names no instrumentor: name it, or say in `lacks` why there is none")
            _check_capabilities(cls.__name__, capabilities(app), lacks)


def _check_override(cls: type, name: str) -> None:
    marks = [mark for mark in getattr(getattr(cls, name, None), "pytestmark", ()) if mark.name == "xfail"]
    if not any(mark.kwargs.get("strict") is True and mark.kwargs.get("reason") for mark in marks):
        raise TypeError(
            f"{cls.__name__}.{name} drops or replaces a test of the suite; that is allowed only under "
            f"@pytest.mark.xfail(strict=True, reason='why the framework cannot do it')"
        )


def _check_capabilities(suite: str, implemented: set[str], lacks: dict[str, str]) -> None:
    unknown = set(lacks) - set(CAPABILITIES)
    if unknown:
        raise TypeError(f"{suite}.lacks names {', '.join(sorted(unknown))}; it may name {', '.join(CAPABILITIES)}")
    both = implemented & set(lacks)
    if both:
        raise TypeError(f"{suite}.lacks names {', '.join(sorted(both))}, which the app implements; take it out")
    silent = [name for name in CAPABILITIES if name not in implemented and not lacks.get(name)]
    if silent:
        raise TypeError(
            f"{suite}.app does not implement {', '.join(silent)}: implement it, or say in `lacks` why the framework cannot do it"
        )
