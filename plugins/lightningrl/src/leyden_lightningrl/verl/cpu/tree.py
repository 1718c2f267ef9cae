"""Rows as one prefix tree: every prefix that rows share is computed once.

The rows of a micro-batch become one sequence, the nodes of their token trie. A node attends to its ancestors only and its
position is its depth, so its hidden state is exactly that of the plain row; logits are taken only at nodes that predict a
trained token. Forward and backward are the plain rows' (up to rounding), at the cost of the distinct tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from leyden_lightningrl.verl.cpu.tree_attention import NAME, make_blocks


@dataclass(frozen=True)
class PrefixTree:
    """Token trie of some rows.

    tokens, depths: (N,) ids and 0-based depths of the nodes, depth first. ancestors: (N, N) bool, True where
    the column's node is the row's node or above it. sources: (S,) nodes whose logits are needed. For each of the M trained
    tokens: source (index into sources), target (the token), slot (its place in the flat output, verl's convention: the
    log-prob of token t stands at t - 1).
    """

    tokens: torch.Tensor
    depths: torch.Tensor
    ancestors: torch.Tensor
    sources: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    slot: torch.Tensor


def build_tree(rows: Sequence[Sequence[int]], trained: Sequence[Sequence[int]]) -> PrefixTree:
    """The trie of `rows` cut after what is needed; `trained[i]` lists the ascending positions of row i's trained tokens."""
    tokens: list[int] = []
    depths: list[int] = []
    parents: list[int] = []
    children: dict[tuple[int, int], int] = {}
    sources: dict[int, int] = {}
    source: list[int] = []
    target: list[int] = []
    slot: list[int] = []
    offsets = [0, *itertools.accumulate(map(len, rows))]
    # Sorted rows make a depth-first tree: a node's neighbours share its ancestors, which the attention lives on.
    for row in sorted(range(len(rows)), key=lambda row: tuple(rows[row])):
        ids, positions, offset = rows[row], trained[row], offsets[row]
        path: list[int] = []
        node = -1
        for depth in range(positions[-1] if positions else 0):  # the last trained token is predicted, never read
            key = (node, ids[depth])
            if (child := children.get(key)) is None:
                child = children[key] = len(tokens)
                tokens.append(ids[depth])
                depths.append(depth)
                parents.append(node)
            path.append(node := child)
        for position in positions:
            source.append(sources.setdefault(path[position - 1], len(sources)))
            target.append(ids[position])
            slot.append(offset + position - 1)
    if not tokens:  # nothing is trained here; one node keeps the forward pass (and FSDP's collectives) going
        tokens, depths, parents, sources = [rows[0][0]], [0], [-1], {0: 0}
    ancestors = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            ancestors[node] = ancestors[parent]
        ancestors[node, node] = True
    return PrefixTree(
        torch.tensor(tokens),
        torch.tensor(depths),
        ancestors,
        torch.tensor(list(sources)),
        torch.tensor(source, dtype=torch.long),
        torch.tensor(target, dtype=torch.long),
        torch.tensor(slot, dtype=torch.long),
    )


def trained_positions(micro_batch: TensorDict) -> list[list[int]]:
    """Per row, the positions (in the whole row) of the tokens whose log-prob matters.

    Tokens under the response mask. In an update without entropy or KL term, rows whose advantages are all zero have no
    gradient, so they are left out.
    """
    lengths = micro_batch["input_ids"].offsets().diff().tolist()
    masks = [mask.bool() for mask in micro_batch["response_mask"].unbind()]
    skip = [False] * len(lengths)
    with_entropy = tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False)
    if "advantages" in micro_batch and "ref_log_prob" not in micro_batch and not with_entropy:
        skip = [not bool(row.any()) for row in micro_batch["advantages"].unbind()]
    positions = []
    for length, mask, skipped in zip(lengths, masks, skip, strict=True):
        start = length - len(mask)
        positions.append([] if skipped else [start + i for i in mask.nonzero()[:, 0].tolist() if start + i > 0])
    return positions


class PrefixTreeMixin:
    """For verl's FSDP language-model engine: overrides what goes into the model and what comes out, nothing else.

    `prefix_tree = False` on the instance gives verl's own row-by-row behaviour back.
    """

    prefix_tree: bool = True
    blockwise: bool = False
    """Whether the model's attention is that of `tree_attention`."""
    tree_tokens: int = 0
    """Tokens of the rows seen since the start."""
    tree_nodes: int = 0
    """Nodes computed for them."""

    def _build_module(self) -> Any:
        """verl's model, with the attention over the tree where the model lets it be chosen."""
        module = super()._build_module()  # type: ignore[misc]
        if getattr(module, "_supports_sdpa", False) and getattr(module, "_supports_attention_backend", True):
            module.set_attn_implementation(NAME)
            self.blockwise = True
        return module

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, object], dict[str, object]]:
        if not self.prefix_tree:
            return super().prepare_model_inputs(micro_batch)  # type: ignore[misc,no-any-return]
        rows = [row.tolist() for row in micro_batch["input_ids"].unbind()]
        tree = build_tree(rows, trained_positions(micro_batch))
        self.tree_tokens += sum(map(len, rows))
        self.tree_nodes += len(tree.tokens)
        inputs: dict[str, object] = {
            "input_ids": tree.tokens[None],
            "position_ids": tree.depths[None],
            "attention_mask": tree.ancestors[None, None],
            "logits_to_keep": tree.sources,
        }
        if self.blockwise:
            inputs["tree_blocks"] = make_blocks(tree.ancestors)
        return inputs, {"tree": tree, "temperature": one_temperature(micro_batch)}

    def prepare_model_outputs(
        self, output: object, output_args: dict[str, object], micro_batch: TensorDict, logits_processor_func: object
    ) -> dict[str, torch.Tensor]:
        if "tree" not in output_args:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)  # type: ignore[misc,no-any-return]
        tree, temperature = output_args["tree"], output_args["temperature"]
        assert isinstance(tree, PrefixTree)
        assert isinstance(temperature, float)
        offsets = micro_batch["input_ids"].offsets()
        logits = output.logits[0].float()  # type: ignore[attr-defined]
        if temperature != 1.0:
            logits = logits / temperature
        normaliser = torch.logsumexp(logits, -1)
        chosen = logits[tree.source, tree.target] - normaliser[tree.source]

        def flat(values: torch.Tensor, background: torch.Tensor) -> torch.Tensor:
            return torch.nested.nested_tensor_from_jagged(background.scatter(0, tree.slot, values), offsets)

        # Keeps the graph connected where nothing is trained.
        zeros = logits.new_zeros(int(offsets[-1])) + 0.0 * normaliser.sum()
        result = {"log_probs": flat(chosen, zeros + self._skipped_log_probs(micro_batch))}
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            probabilities = torch.exp(logits - normaliser[:, None])
            entropy = normaliser - (probabilities * logits).sum(-1)
            result["entropy"] = flat(entropy[tree.source], zeros)
        return result

    def _skipped_log_probs(self, micro_batch: TensorDict) -> torch.Tensor:
        """The old log-probs in verl's flat layout, so that tokens left out have ratio 1 in verl's metrics."""
        lengths = micro_batch["input_ids"].offsets().diff().tolist()
        background = torch.zeros(sum(lengths))
        if "old_log_probs" not in micro_batch:
            return background
        end = 0
        for length, old in zip(lengths, micro_batch["old_log_probs"].unbind(), strict=True):
            end += length
            background[end - 1 - len(old) : end - 1] = old
        return background


def one_temperature(micro_batch: TensorDict) -> float:
    """The micro-batch's sampling temperature; the tree needs one for all of its rows."""
    temperature = micro_batch["temperature"]
    if isinstance(temperature, torch.Tensor):
        first = temperature.flatten()[0]
        if not bool((temperature == first).all()):
            raise ValueError("rows of different temperatures cannot share a prefix tree: set prefix_tree=False")
        return float(first)
    return float(temperature)
