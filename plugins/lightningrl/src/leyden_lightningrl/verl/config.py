"""verl's own configuration (hydra's "ppo_trainer"), composed from LightningRL's settings.

Nothing here imports verl itself, only its configuration files through hydra, so that a wrong key is found in a second.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from leyden.errors import ConfigError
from leyden_lightningrl.config import Settings, close_matches

ROLLOUT_NAME = "leyden_vllm"
UNBOUNDED = 1 << 40
"""Tokens per forward pass where nothing bounds them."""

OURS = {
    "actor_rollout_ref.actor.clip_ratio": "clip_low and clip_high",
    "actor_rollout_ref.actor.clip_ratio_high": "clip_high",
    "actor_rollout_ref.actor.clip_ratio_low": "clip_low",
    "actor_rollout_ref.actor.entropy_coeff": "entropy_coefficient",
    "actor_rollout_ref.actor.kl_loss_coef": "kl_coefficient",
    "actor_rollout_ref.actor.use_kl_loss": "kl_coefficient",
    "actor_rollout_ref.actor.loss_agg_mode": "loss_average",
    "actor_rollout_ref.actor.optim.lr": "learning_rate",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "lr_schedule",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "warmup_steps",
    "actor_rollout_ref.actor.optim.betas": "betas",
    "actor_rollout_ref.actor.optim.weight_decay": "weight_decay",
    "actor_rollout_ref.actor.optim.clip_grad": "gradient_clip",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "updates_per_step",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "micro_batch_tokens",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "micro_batch_tokens",
    "actor_rollout_ref.model.path": "model",
    "actor_rollout_ref.model.lora_rank": "lora_rank",
    "actor_rollout_ref.model.lora_alpha": "lora_alpha",
    "actor_rollout_ref.rollout.n": "group_size",
    "actor_rollout_ref.rollout.temperature": "temperature",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "tensor_parallel",
    "algorithm.adv_estimator": "baseline and scale",
    "algorithm.norm_adv_by_std_in_grpo": "scale",
    "algorithm.rollout_correction.bypass_mode": "recompute_logprobs",
    "data.max_prompt_length": "max_prompt_tokens",
    "data.max_response_length": "max_response_tokens",
    "data.train_batch_size": "tasks_per_step",
    "data.seed": "seed",
    "trainer.device": "device",
    "trainer.n_gpus_per_node": "gpus",
    "trainer.nnodes": "nodes",
    "trainer.save_freq": "save_every",
    "trainer.test_freq": "val_every",
    "trainer.total_training_steps": "steps",
    "trainer.val_before_train": "val_before",
}
"""Keys of verl that a setting of LightningRL's own decides, so that two values cannot disagree."""

FIXED = (
    "actor_rollout_ref.rollout.name",
    "actor_rollout_ref.rollout.mode",
    "algorithm.use_kl_in_reward",
    "critic.enable",
    "data.custom_cls",
    "data.train_files",
    "data.val_files",
    "distillation.enabled",
    "reward.num_workers",
    "trainer.default_local_dir",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.use_v1",
    "trainer.v1.trainer_mode",
    "transfer_queue.enable",
)
"""Keys that LightningRL's way of using verl depends on (advantages and rollouts come from Leyden)."""

OPEN = ("engine_kwargs", "override_config", "override_optimizer_config", "apply_chat_template_kwargs", "ray_init")
"""Sections of verl that take any key."""


def config_folder() -> Path:
    """Folder of verl's configuration files. Raises `ConfigError` where verl is not installed."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        raise ConfigError("verl is not installed: pip install 'leyden-lightningrl[cpu]' (or [gpu])")
    return Path(spec.origin).parent / "trainer" / "config"


def make_config(
    settings: Settings,
    *,
    device: str,
    model: Path,
    directory: Path,
    tasks: int,
    seed: int,
    validates: bool = True,
    addresses: Sequence[str] = (),
    weights_files: Sequence[str] = (),
    resume_from: Path | None = None,
) -> DictConfig:
    """The whole configuration. Raises `ConfigError` for a key in `settings.verl` that verl lacks or that is decided here.

    `tasks` is the size of the training set, `validates` says whether to validate before the first step; `addresses` and
    `weights_files` belong to the CPU's rollout servers, one per replica.
    """
    with initialize_config_dir(str(config_folder()), version_base=None):
        config = compose("ppo_trainer")
    overrides = checked_overrides(settings.verl, config)
    values = common_values(settings, model=model, directory=directory, tasks=tasks, seed=seed)
    if device == "cpu":
        values |= cpu_values(settings, addresses=addresses, weights_files=weights_files)
    else:
        values |= gpu_values(settings)
    values["trainer.val_before_train"] = settings.val_before and validates
    if resume_from is not None:
        values |= {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(resume_from)}
    with open_dict(config):
        for name, value in (values | overrides).items():
            OmegaConf.update(config, name, value, merge=True, force_add=True)
    OmegaConf.resolve(config)
    return config


def checked_overrides(overrides: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    """The overrides by their full dotted names, however they were nested. Raises `ConfigError` for the first that cannot
    be meant: a name that verl lacks, one that is decided here, a value in the place of a section."""
    known = dotted_names(OmegaConf.to_container(config, resolve=False))
    sections = {name.rpartition(".")[0] for name in known}
    flat = flattened(overrides, sections)
    for name, value in flat.items():
        if name in OURS:
            raise ConfigError(f"verl's {name!r} is decided by LightningRL's setting {OURS[name]}: set that instead")
        if any(name == fixed or name.startswith(f"{fixed}.") for fixed in FIXED):
            raise ConfigError(f"verl's {name!r} cannot be changed here: LightningRL depends on its value")
        if is_open(name) or (is_open(f"{name}.") and isinstance(value, Mapping)):
            continue
        if name not in known:
            raise ConfigError(f"verl has no setting {name!r}{close_matches(name, known)}")
        if name in sections:
            raise ConfigError(f"verl's {name!r} is a section, it cannot be {value!r}: set one of the settings in it")
    return flat


def is_open(name: str) -> bool:
    """Whether `name` lies in a section of verl's that takes any key."""
    return any(f".{section}." in f".{name}" for section in OPEN)


def flattened(overrides: Mapping[str, Any], sections: Collection[str], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b.c": 1}}` → `{"a.b.c": 1}` where a and a.b are sections; a mapping in any other place is a value."""
    found: dict[str, Any] = {}
    for key, value in overrides.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and name in sections and not is_open(f"{name}."):
            found |= flattened(value, sections, f"{name}.")
        else:
            found[name] = value
    return found


def dotted_names(tree: Any, prefix: str = "") -> set[str]:
    """Every path in nested mappings, sections included."""
    if not isinstance(tree, Mapping):
        return set()
    names = set()
    for key, value in tree.items():
        name = f"{prefix}{key}"
        names |= {name} | dotted_names(value, f"{name}.")
    return names


def common_values(settings: Settings, *, model: Path, directory: Path, tasks: int, seed: int) -> dict[str, Any]:
    """What holds on every device."""
    values: dict[str, Any] = {
        # Tasks: verl draws their numbers, the rollouts themselves come through the TrainingRun.
        "data.custom_cls.path": "pkg://leyden_lightningrl.verl.dataset",
        "data.custom_cls.name": "TaskNumbers",
        "data.train_files": str(tasks),
        "data.val_files": "1",
        "data.train_batch_size": settings.tasks_per_step,
        "data.max_prompt_length": settings.max_prompt_tokens,
        "data.max_response_length": settings.max_response_tokens,
        "data.dataloader_num_workers": 0,
        "data.seed": seed,
        "reward.num_workers": 0,
        "critic.enable": False,
        # Advantages are computed per rollout by Leyden; verl's estimator only fills in before they replace it.
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.bypass_mode": not settings.recompute_logprobs,
        "transfer_queue.enable": True,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "trainer.project_name": "leyden",
        "trainer.experiment_name": directory.name,
        "trainer.logger": [],
        "trainer.total_epochs": settings.steps * settings.tasks_per_step // max(1, tasks) + 2,
        "trainer.total_training_steps": settings.steps,
        "trainer.save_freq": settings.save_every or settings.steps,
        "trainer.test_freq": settings.val_every or settings.steps,
        "trainer.default_local_dir": str(directory / "checkpoints"),
        "trainer.resume_mode": "disable",
        "trainer.n_gpus_per_node": settings.gpus,
        "trainer.nnodes": settings.nodes,
        "trainer.v1.trainer_mode": "sync",
    }
    return values | actor_values(settings, model) | rollout_values(settings, seed)


def actor_values(settings: Settings, model: Path) -> dict[str, Any]:
    """The policy: its model, its optimiser and its loss."""
    actor = "actor_rollout_ref.actor"
    tokens = settings.micro_batch_tokens or 8 * settings.context
    values: dict[str, Any] = {
        "actor_rollout_ref.model.path": str(model),
        f"{actor}.strategy": "fsdp2",
        "actor_rollout_ref.ref.strategy": "fsdp2",
        # Counted in rows and set anew at each step, see LeydenTrainer.
        f"{actor}.ppo_mini_batch_size": settings.tasks_per_step,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": tokens,
        f"{actor}.optim.lr": settings.learning_rate,
        f"{actor}.optim.lr_scheduler_type": settings.lr_schedule,
        f"{actor}.optim.lr_warmup_steps": settings.warmup_steps,
        f"{actor}.optim.betas": list(settings.betas),
        f"{actor}.optim.weight_decay": settings.weight_decay,
        f"{actor}.optim.clip_grad": settings.gradient_clip,
        f"{actor}.grad_clip": settings.gradient_clip,
        f"{actor}.clip_ratio": settings.clip_low,
        f"{actor}.clip_ratio_low": settings.clip_low,
        f"{actor}.clip_ratio_high": settings.clip_high,
        f"{actor}.entropy_coeff": settings.entropy_coefficient,
        f"{actor}.use_kl_loss": settings.kl_coefficient > 0,
        f"{actor}.kl_loss_coef": settings.kl_coefficient,
        f"{actor}.loss_agg_mode": settings.loss_average,
    }
    if settings.lora_rank:
        values |= {
            "actor_rollout_ref.model.lora_rank": settings.lora_rank,
            "actor_rollout_ref.model.lora_alpha": settings.lora_alpha,
            # The server gets merged weights: twice as fast to decode as an adapter, and one way of syncing for all.
            "actor_rollout_ref.model.lora.merge": True,
            f"{actor}.fsdp_config.use_orig_params": True,
        }
    return values


def rollout_values(settings: Settings, seed: int) -> dict[str, Any]:
    """The rollout: `n` stays 1 because a task's group of rollouts is made by the TrainingRun."""
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.n": 1,
        f"{rollout}.mode": "async",
        f"{rollout}.temperature": settings.temperature,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.max_model_len": settings.context,
        f"{rollout}.seed": seed,
        f"{rollout}.agent.num_workers": 1,
        f"{rollout}.tensor_model_parallel_size": settings.tensor_parallel,
    }


def cpu_values(settings: Settings, *, addresses: Sequence[str], weights_files: Sequence[str]) -> dict[str, Any]:
    """float32 throughout (bfloat16 is slower on a CPU and inexact), and our server processes as the rollout."""
    actor = "actor_rollout_ref.actor"
    single = {"param_dtype": "fp32", "reduce_dtype": "fp32"}
    values: dict[str, Any] = {
        "trainer.device": "cpu",
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"{actor}.fsdp_config.model_dtype": "fp32",
        f"{actor}.fsdp_config.mixed_precision": single,
        "actor_rollout_ref.ref.use_torch_compile": False,
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
        "actor_rollout_ref.ref.fsdp_config.model_dtype": "fp32",
        "actor_rollout_ref.ref.fsdp_config.mixed_precision": single,
        "actor_rollout_ref.rollout.name": ROLLOUT_NAME,
        "actor_rollout_ref.rollout.dtype": "float32",
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "actor_rollout_ref.rollout.load_format": "auto",
        f"actor_rollout_ref.rollout.engine_kwargs.{ROLLOUT_NAME}": {
            "addresses": list(addresses),
            "weights_files": list(weights_files),
            "prefix_tree": settings.prefix_tree,
            "probe_tokens": settings.probe_tokens,
        },
    }
    if settings.prefix_tree and settings.micro_batch_tokens is None:
        values[f"{actor}.ppo_max_token_len_per_gpu"] = UNBOUNDED
    return values


def gpu_values(settings: Settings) -> dict[str, Any]:
    """verl's stock vLLM replicas and workers."""
    return {"trainer.device": "cuda", "actor_rollout_ref.rollout.name": "vllm"}
