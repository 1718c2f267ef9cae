"""LightningRL's settings: one frozen struct, checked whole before anything is started."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from leyden.errors import ConfigError
from leyden_lightningrl.advantage import Baseline, Scale
from leyden_lightningrl.credit import credit_named


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What LightningRL can be told. Lengths are in tokens, sizes in bytes, intervals in steps (one update each)."""

    model: str
    """Folder of a Hugging Face model with a chat template, or its name on the hub."""

    # How much.
    group_size: int = 8
    """Rollouts per task: the group that a rollout is compared with."""
    tasks_per_step: int = 8
    steps: int = 16
    max_prompt_tokens: int = 1024
    max_response_tokens: int = 256
    """Longest answer of one call. The server's context is max_prompt_tokens + max_response_tokens."""

    # The update.
    learning_rate: float = 1e-6
    lr_schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = 0
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    gradient_clip: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    """The probability ratio is clipped to [1 - clip_low, 1 + clip_high]."""
    entropy_coefficient: float = 0.0
    kl_coefficient: float = 0.0
    """Weight of the KL loss against the model as it was at the start; 0 loads no reference model."""
    loss_average: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"] = "token-mean"
    updates_per_step: int = 1
    """Optimiser steps that the rows of one step are split into."""
    recompute_logprobs: bool = False
    """Recompute the old log-probs with the trainer instead of taking the server's (they agree within 1e-4)."""
    lora_rank: int = 0
    """0 trains all weights."""
    lora_alpha: int = 32
    micro_batch_tokens: int | None = None
    """Most tokens (before prefixes are shared) in one forward pass; None: all rows with the prefix tree, else 8 rows."""

    # From rewards to advantages.
    credit: Any = "uniform"
    """How a rollout's reward becomes the reward of each call: a name, or a function, see `leyden_lightningrl.credit`."""
    baseline: Baseline = "group_mean"
    """What a reward is compared with, see `leyden_lightningrl.advantage`."""
    scale: Scale = "std"
    """What advantages are divided by: the standard deviation of the group, that of the step, or nothing."""
    zero_variance: Literal["drop", "keep"] = "drop"
    """Groups of equal rewards teach nothing against a baseline of their own; left in, their tokens still dilute the
    loss's average over tokens. Against "batch_mean" they do teach, and are kept."""
    failed_reward: float | None = None
    """Reward of a failed rollout that has none (see `on_failed` of `leyden.train`); None leaves it out."""
    missing_reward: float | None = None
    """Reward of a rollout that got none; None leaves it out."""
    rollout_timeout_s: float | None = None

    # Sampling.
    temperature: float = 1.0
    val_temperature: float = 0.0
    """0 is greedy."""

    # When.
    val_every: int = 0
    """0 validates before the first and after the last step only."""
    val_before: bool = True
    save_every: int = 0
    """0 saves after the last step only."""
    keep_checkpoints: int = 2
    seed: int | None = None
    """None takes the run's seed."""

    # The machine.
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = 1
    """GPUs per node (device "cuda"), or trainer processes on this machine (device "cpu")."""
    nodes: int = 1
    tensor_parallel: int = 1
    threads: int | None = None
    """Threads of the trainer and of the server each; None takes the machine's cores. They compute in turns."""
    prefix_tree: bool = True
    """CPU only: compute prefixes that rows share once."""
    probe_tokens: int = 24
    """CPU only: after each weight sync, compare server and trainer on so many tokens; 0 turns the probe off."""
    probe_tolerance: float = 1e-2
    """Largest accepted |difference| in log-prob of that probe; above it the run stops."""

    # The rollout server on a CPU (on GPUs: `verl={"actor_rollout_ref.rollout....": ...}`).
    server_kv_bytes: int = 512 << 20
    server_max_sequences: int = 96
    server_block_size: int = 32
    """Tokens per cache block: prefixes are shared in whole blocks. A multiple of 32."""
    server_arguments: tuple[str, ...] = ()
    """More arguments of `vllm serve`."""

    verl: dict[str, Any] = {}
    """Settings of verl itself, by dotted name: {"actor_rollout_ref.actor.clip_ratio_c": 5.0}."""

    @property
    def context(self) -> int:
        """The server's context length in tokens."""
        return self.max_prompt_tokens + self.max_response_tokens

    @property
    def cores(self) -> int:
        """Threads of the trainer and of the server each."""
        return self.threads or len(os.sched_getaffinity(0))


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from keywords. Raises `ConfigError` for an unknown name, a wrong type or a contradiction."""
    known = Settings.__struct_fields__
    for name in values:
        if name not in known:
            raise ConfigError(
                f"LightningRL has no setting {name!r}{close_matches(name, known)}; its settings: {', '.join(known)}"
            )
    if "model" not in values:
        raise ConfigError('LightningRL needs a model to train: LightningRL(model="folder or hub name")')
    try:
        settings = msgspec.convert(dict(values), Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"LightningRL: {error}") from None
    check_settings(settings)
    return settings


def close_matches(name: str, known: Iterable[str]) -> str:
    """`" (did you mean 'a' or 'b'?)"`, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


def check_settings(settings: Settings) -> None:
    """Raises `ConfigError` for values that cannot work, alone or together."""
    credit_named(settings.credit)
    for reason in contradictions(settings):
        raise ConfigError(f"LightningRL: {reason}")


def contradictions(settings: Settings) -> list[str]:
    """Everything that is wrong with the values, each with its remedy."""
    at_least: dict[str, float] = dict.fromkeys(
        ("group_size", "tasks_per_step", "steps", "max_prompt_tokens", "max_response_tokens", "updates_per_step"), 1
    )
    at_least |= dict.fromkeys(("keep_checkpoints", "gpus", "nodes", "tensor_parallel", "server_max_sequences"), 1)
    at_least |= dict.fromkeys(("warmup_steps", "lora_rank", "val_every", "save_every", "probe_tokens"), 0)
    at_least |= dict.fromkeys(("learning_rate", "weight_decay", "entropy_coefficient", "kl_coefficient"), 0)
    at_least |= dict.fromkeys(("val_temperature", "clip_low", "clip_high"), 0)
    found = [
        f"{name} is {getattr(settings, name)}, it must be at least {least:g}"
        for name, least in at_least.items()
        if not getattr(settings, name) >= least
    ]
    checks: list[tuple[bool, str]] = [
        (
            settings.group_size == 1 and settings.baseline in ("group_mean", "leave_one_out"),
            f'group_size=1 with baseline="{settings.baseline}": a group of one has nothing to be compared with; '
            'use group_size >= 2, baseline="batch_mean" or baseline="none"',
        ),
        (
            settings.group_size == 1 and settings.scale == "std",
            'group_size=1 with scale="std": one rollout has no standard deviation; use scale="batch_std" or "none"',
        ),
        (
            settings.baseline == "none" and settings.zero_variance == "drop" and settings.group_size == 1,
            'group_size=1 needs zero_variance="keep": every group of one has no variance',
        ),
        (
            settings.baseline in ("batch_mean", "none") and settings.scale == "std" and settings.group_size > 1,
            f'baseline="{settings.baseline}" with scale="std": groups of equal rewards would be divided by almost zero; '
            'use scale="batch_std" (with "batch_mean") or "none"',
        ),
        (
            settings.baseline == "none" and settings.scale == "batch_std",
            'baseline="none" with scale="batch_std": a step of equal rewards would be divided by almost zero; '
            'use scale="none"',
        ),
        (not settings.temperature > 0, "temperature must be above 0: greedy rollouts of one task are all the same"),
        (not settings.gradient_clip > 0, "gradient_clip must be above 0"),
        (settings.threads is not None and settings.threads < 1, "threads must be at least 1"),
        (
            settings.micro_batch_tokens is not None and settings.micro_batch_tokens < settings.context,
            f"micro_batch_tokens={settings.micro_batch_tokens} is less than one row may have "
            f"(max_prompt_tokens + max_response_tokens = {settings.context})",
        ),
        (not all(0 <= beta < 1 for beta in settings.betas), "betas must be in [0, 1)"),
        (settings.probe_tokens == 1, "probe_tokens must be 0 or at least 2"),
        (settings.server_block_size % 32 != 0, "server_block_size must be a multiple of 32 on a CPU"),
    ]
    found += [reason for wrong, reason in checks if wrong]
    values = msgspec.structs.asdict(settings)
    found += [f"{name} is {x}, it must be a finite number" for name, x in values.items() if is_endless(x)]
    return found


def is_endless(value: Any) -> bool:
    """Whether a value is NaN or an infinity."""
    return isinstance(value, float) and not math.isfinite(value)
