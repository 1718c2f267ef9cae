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


def test_rows_in_any_order_make_a_depth_first_tree() -> None:
    from leyden_lightningrl.verl.cpu.tree import build_tree

    tree = build_tree([[7, 9, 4], [5, 1, 1], [7, 8, 2]], [[2], [2], [2]])
    assert tree.tokens.tolist() == [5, 1, 7, 8, 9]
    assert tree.target.tolist() == [1, 2, 4]
    assert tree.slot.tolist() == [4, 7, 1]


def test_blocks_read_their_ancestors_only() -> None:
    import torch

    from leyden_lightningrl.verl.cpu.tree import build_tree
    from leyden_lightningrl.verl.cpu.tree_attention import TreeAttention, make_blocks

    generator = torch.Generator().manual_seed(0)
    trunk = list(range(10))
    rows = [trunk + [20 + branch] * 5 + [branch, 0] for branch in range(6)]
    tree = build_tree(rows, [[16]] * 6)
    blocks = make_blocks(tree.ancestors, 8)
    assert max(len(block.columns) for block in blocks) < len(tree.tokens) / 1.5

    nodes = len(tree.tokens)
    query = torch.randn(1, 4, nodes, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    key, value = (
        torch.randn(1, 2, nodes, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    weights = torch.randn(1, 4, nodes, 8, generator=generator, dtype=torch.float64)
    mine = TreeAttention.apply(query, key, value, blocks, 0.3)
    scores = (query @ key.repeat_interleave(2, 1).transpose(-1, -2)) * 0.3
    whole = scores.masked_fill(~tree.ancestors, -torch.inf).softmax(-1) @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(mine, whole)
    for left, right in zip(
        torch.autograd.grad((mine * weights).sum(), (query, key, value)),
        torch.autograd.grad((whole * weights).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(left, right)
