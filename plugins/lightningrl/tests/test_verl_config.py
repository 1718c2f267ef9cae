"""verl's configuration as it is composed for a CPU and for GPUs, and wrong keys in it (needs verl's configuration files)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from leyden.errors import ConfigError
from leyden_lightningrl.config import make_settings

pytestmark = pytest.mark.heavy
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)


def compose(device: str = "cpu", **settings: Any) -> Any:
    from leyden_lightningrl.verl.config import make_config

    made = make_settings({"model": "m", "max_prompt_tokens": 100, "max_response_tokens": 28, **settings})
    return make_config(
        made,
        device=device,
        model=Path("/models/m"),
        directory=Path("/runs/one"),
        tasks=40,
        seed=7,
        addresses=["127.0.0.1:1"],
        weights_files=["/dev/shm/w"],
    )


def test_settings_reach_verl() -> None:
    config = compose(
        learning_rate=2e-5, betas=(0.9, 0.95), clip_high=0.28, steps=12, tasks_per_step=10, temperature=0.7
    )
    actor = config.actor_rollout_ref.actor
    assert actor.optim.lr == 2e-5
    assert list(actor.optim.betas) == [0.9, 0.95]
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (0.2, 0.28)
    assert actor.use_kl_loss is False
    assert config.actor_rollout_ref.rollout.temperature == 0.7
    assert config.trainer.total_training_steps == 12
    assert config.data.train_batch_size == 10
    assert config.data.seed == 7
    assert config.algorithm.rollout_correction.bypass_mode is True


def test_cpu() -> None:
    config = compose()
    rollout = config.actor_rollout_ref.rollout
    assert config.trainer.device == "cpu"
    assert rollout.name == "leyden_vllm"
    assert rollout.engine_kwargs.leyden_vllm.addresses == ["127.0.0.1:1"]
    assert rollout.free_cache_engine is False
    assert config.actor_rollout_ref.actor.fsdp_config.model_dtype == "fp32"
    assert config.actor_rollout_ref.model.override_config.attn_implementation == "sdpa"
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu > 1 << 30  # one tree for all rows


def test_rows_instead_of_a_tree_are_bounded() -> None:
    assert compose(prefix_tree=False).actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 8 * 128
    assert compose(micro_batch_tokens=500).actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 500


def test_gpus_are_configuration_only() -> None:
    config = compose(
        "cuda", gpus=8, nodes=2, tensor_parallel=2, verl={"actor_rollout_ref.rollout.gpu_memory_utilization": 0.7}
    )
    rollout = config.actor_rollout_ref.rollout
    assert config.trainer.device == "cuda"
    assert (config.trainer.n_gpus_per_node, config.trainer.nnodes) == (8, 2)
    assert rollout.name == "vllm"
    assert rollout.tensor_model_parallel_size == 2
    assert rollout.gpu_memory_utilization == 0.7
    assert rollout.free_cache_engine is True
    assert rollout.dtype == "bfloat16"
    assert "leyden_vllm" not in rollout.engine_kwargs
    assert config.actor_rollout_ref.actor.fsdp_config.model_dtype != "fp16"
    assert config.actor_rollout_ref.model.use_remove_padding is True


def test_lora_is_merged_for_the_server() -> None:
    model = compose(lora_rank=8, lora_alpha=16).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.lora.merge) == (8, 16, True)


def test_verls_own_checks_pass() -> None:
    from leyden_lightningrl.verl.launch import check_config

    check_config(compose())


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("actor_rollout_ref.actor.clip_ratio_d", r"did you mean 'actor_rollout_ref\.actor\.clip_ratio"),
        ("trainer.loger", r"no setting 'trainer\.loger' \(did you mean 'trainer\.logger'"),
        ("actor_rollout_ref.actor.optim.lr", "setting learning_rate: set that instead"),
        ("data.custom_cls.path", "LightningRL depends on its value"),
        ("algorithm.use_kl_in_reward", "LightningRL depends on its value"),
        ("actor_rollout_ref.actor", "is a section, it cannot be 1"),
        ("critic", "is a section, it cannot be 1"),
    ],
)
def test_wrong_keys_in_verls_part(key: str, message: str) -> None:
    nested: Any = 1
    for name in reversed(key.split(".")):
        nested = {name: nested}
    section, _, rest = key.partition(".")
    for verl in ({key: 1}, nested, {section: {rest: 1}} if rest else nested):  # --set verl.a.b=1 comes nested
        with pytest.raises(ConfigError, match=message):
            compose(verl=verl)


def test_nested_settings_of_verl_reach_it_and_leave_their_neighbours() -> None:
    config = compose(verl={"actor_rollout_ref": {"actor": {"clip_ratio_c": 5.0}, "rollout.prompt_length": 7}})
    assert config.actor_rollout_ref.actor.clip_ratio_c == 5.0
    assert config.actor_rollout_ref.actor.clip_ratio_low == 0.2
    assert config.actor_rollout_ref.rollout.prompt_length == 7


def test_open_sections_take_any_key() -> None:
    config = compose(verl={"actor_rollout_ref.model.override_config.rope_theta": 5.0, "trainer.logger": ["console"]})
    assert config.actor_rollout_ref.model.override_config.rope_theta == 5.0
    assert config.trainer.logger == ["console"]
    config = compose(verl={"actor_rollout_ref": {"rollout": {"engine_kwargs": {"vllm": {"anything": 1}}}}})
    assert config.actor_rollout_ref.rollout.engine_kwargs.vllm.anything == 1
    assert config.actor_rollout_ref.rollout.engine_kwargs.leyden_vllm.addresses == ["127.0.0.1:1"]
