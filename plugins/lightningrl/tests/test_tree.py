"""The token trie by itself."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("default")]
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)


def test_shared_prefixes_are_one_path() -> None:
    from leyden_lightningrl.verl.cpu.tree import build_tree

    tree = build_tree([[7, 8, 1, 2], [7, 8, 1, 3], [7, 9, 4]], [[2, 3], [3], [2]])
    # 7 -> 8 -> 1, 7 -> 9; the last trained token of a row is never read
    assert tree.tokens.tolist() == [7, 8, 1, 9]
    assert tree.depths.tolist() == [0, 1, 2, 1]
    assert tree.ancestors.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]
    assert tree.sources.tolist() == [1, 2, 3]
    assert tree.source.tolist() == [0, 1, 1, 2]
    assert tree.target.tolist() == [1, 2, 3, 4]
    assert tree.slot.tolist() == [1, 2, 6, 9]


def test_nothing_trained_is_one_node() -> None:
    from leyden_lightningrl.verl.cpu.tree import build_tree

    tree = build_tree([[7, 8], [9]], [[], []])
    assert tree.tokens.tolist() == [7]
    assert tree.target.tolist() == []
