"""How little a program changes to be trained."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_at_most_eight_lines_differ_from_plain_use() -> None:
    plain, train = ((HERE / name).read_text().splitlines() for name in ("plain.py", "train.py"))
    added = [line for line in difflib.ndiff(plain, train) if line.startswith("+ ") and line[2:].strip()]
    assert len(added) <= 8, added
    assert any("leyden.train(" in line for line in added)


def test_the_agent_imports_nothing_of_leyden() -> None:
    for name in ("agent.py", "corpus.py", "tasks.py", "plain.py"):
        nodes = list(ast.walk(ast.parse((HERE / name).read_text())))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not [module for module in imported if module.startswith("leyden")]
