"""Settings: unknown names, wrong types and contradictions are errors that say what to do."""

from __future__ import annotations

import pytest

from leyden.errors import ConfigError
from leyden_lightningrl.config import Settings, make_settings


def test_defaults_need_only_a_model() -> None:
    settings = make_settings({"model": "m"})
    assert settings.group_size == 8
    assert settings.context == settings.max_prompt_tokens + settings.max_response_tokens


def test_text_from_a_command_line_is_converted() -> None:
    settings = make_settings({"model": "m", "group_size": "4", "learning_rate": "2e-5", "prefix_tree": "false"})
    assert (settings.group_size, settings.learning_rate, settings.prefix_tree) == (4, 2e-5, False)


def test_unknown_setting_names_the_close_one() -> None:
    with pytest.raises(ConfigError, match=r"'groupsize' \(did you mean 'group_size'"):
        make_settings({"model": "m", "groupsize": 4})


def test_a_model_is_required() -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        make_settings({})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_size": 1}, "a group of one has nothing to be compared with"),
        ({"group_size": 1, "baseline": "none"}, "no standard deviation"),
        ({"group_size": 1, "baseline": "none", "scale": "none"}, 'zero_variance="keep"'),
        ({"baseline": "batch_mean"}, "divided by almost zero"),
        ({"baseline": "none", "scale": "batch_std"}, "divided by almost zero"),
        ({"group_size": 0}, "group_size is 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"micro_batch_tokens": 100}, "less than one row may have"),
        ({"missing_reward": float("nan")}, "missing_reward is nan, it must be a finite number"),
        ({"failed_reward": float("inf")}, "failed_reward is inf, it must be a finite number"),
        ({"server_block_size": 48}, "multiple of 32"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate is inf, it must be a finite number"),
        ({"temperature": float("inf")}, "temperature is inf, it must be a finite number"),
        ({"credit": "unifrom"}, "unknown credit 'unifrom'"),
        ({"baseline": "mean"}, "baseline"),
        ({"group_size": "four"}, "group_size"),
    ],
)
def test_contradictions(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_settings({"model": "m", **values})


def test_a_group_of_one_without_baseline_is_allowed() -> None:
    settings = make_settings(
        {"model": "m", "group_size": 1, "baseline": "none", "scale": "none", "zero_variance": "keep"}
    )
    assert settings.group_size == 1


def test_a_credit_function_is_kept() -> None:
    def mine(episode: object, transitions: object, reward: float) -> list[float]:
        return [reward]

    assert make_settings({"model": "m", "credit": mine}).credit is mine


def test_settings_cannot_be_changed() -> None:
    settings = Settings(model="m")
    with pytest.raises(AttributeError):
        settings.group_size = 3  # type: ignore[misc]
