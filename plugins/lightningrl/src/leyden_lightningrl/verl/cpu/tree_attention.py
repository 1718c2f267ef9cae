"""Attention over a prefix tree, block by block: a block of nodes reads its own ancestors, not the whole tree.

Nodes are in depth-first order, so the ancestors of a block of neighbours are few: the trunk, and the branch they are on.
Registered with transformers under its own name; a call without `tree_blocks` is ordinary scaled dot-product attention.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "leyden_tree"
BLOCK = 64
"""Nodes per block: small enough to share few ancestors with others, large enough for the matrix kernels."""


class Block(NamedTuple):
    """Nodes start..end; columns (C,): the nodes that they read; mask (1, 1, end - start, C): which of them each reads."""

    start: int
    end: int
    columns: torch.Tensor
    mask: torch.Tensor


def make_blocks(ancestors: torch.Tensor, size: int = BLOCK) -> list[Block]:
    """Blocks of the (N, N) ancestor matrix of a tree in depth-first order."""
    blocks = []
    for start in range(0, len(ancestors), size):
        rows = ancestors[start : start + size]
        columns = rows.any(0).nonzero()[:, 0]
        blocks.append(Block(start, start + len(rows), columns, rows[:, columns][None, None]))
    return blocks


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, block: Block, scale: float) -> torch.Tensor:
    """One block's output (1, H, rows, D); key and value are the block's columns, (1, H_kv, C, D)."""
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    return scaled_dot_product_attention(query, key, value, attn_mask=block.mask, scale=scale)


class TreeAttention(torch.autograd.Function):  # type: ignore[misc]
    """All blocks' attention. The backward pass computes each block again, which keeps nothing but the inputs in memory and
    adds a block's gradients to the whole ones in place (autograd would fill a whole tensor per block)."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: list[Block], scale: float
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.blocks, ctx.scale = blocks, scale
        parts = [
            attend(query[:, :, b.start : b.end], key[:, :, b.columns], value[:, :, b.columns], b, scale) for b in blocks
        ]
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value = ctx.saved_tensors
        of_query, of_key, of_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        for block in ctx.blocks:
            rows = slice(block.start, block.end)
            mine = query[:, :, rows].detach().requires_grad_()
            keys = key[:, :, block.columns].detach().requires_grad_()
            values = value[:, :, block.columns].detach().requires_grad_()
            with torch.enable_grad():
                output = attend(mine, keys, values, block, ctx.scale)
            found = torch.autograd.grad(output, (mine, keys, values), gradients[0][:, :, rows])
            of_query[:, :, rows] = found[0]
            of_key.index_add_(2, block.columns, found[1])
            of_value.index_add_(2, block.columns, found[2])
        return of_query, of_key, of_value, None, None


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    tree_blocks: list[Block] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: (1, H, N, D) queries → (1, N, H, D)."""
    if tree_blocks is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = TreeAttention.apply(query, key, value, tree_blocks, scale)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
