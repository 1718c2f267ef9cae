"""What the adapter conformance suite asks for, read from its source: nothing of it is imported."""

from __future__ import annotations

import ast

from packages import ROOT

SUITE = ROOT / "core" / "src" / "leyden" / "testing" / "adapter"


def needs() -> dict[str, tuple[str, ...]]:
    """Test of the suite → capabilities that it needs, read from the `@needs(…)` of its source."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(SUITE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                calls = [call for call in node.decorator_list if isinstance(call, ast.Call)]
                named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "needs"]
                found[node.name] = tuple(ast.literal_eval(argument) for call in named for argument in call.args)
    return found


def capabilities() -> list[str]:
    """All capabilities in the suite's order; `run` is what every app does."""
    (value,) = (
        node.value
        for node in ast.parse((SUITE / "app.py").read_text()).body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "CAPABILITIES"
    )
    return ["run", *ast.literal_eval(value)]  # type: ignore[arg-type]


def meanings() -> dict[str, str]:
    """Capability → its sentence in the docstring of the app's method."""
    (app,) = (
        node
        for node in ast.parse((SUITE / "app.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "AgentApp"
    )
    said = {
        node.name: ast.get_docstring(node)
        for node in app.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name: " ".join(str(said.get(name)).split()) for name in capabilities()}
