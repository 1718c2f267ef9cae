from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leyden.config import construct, convert, parse_assignments
from leyden.errors import ConfigError


class Lora(msgspec.Struct, forbid_unknown_fields=True):
    rank: int = 8
    alpha: float = 16.0


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    group_size: int = 8
    lora: Lora | None = None


def test_assignments_are_json_where_they_can_be_and_nest_by_dots() -> None:
    given = [
        "model=Qwen/x=y",
        "group_size=4",
        "lora.rank=2",
        "lora.alpha=1e-3",
        "flag=true",
        "names=[1, 2]",
        "off=None",
    ]
    assert parse_assignments(given) == {
        "model": "Qwen/x=y",
        "group_size": 4,
        "lora": {"rank": 2, "alpha": 0.001},
        "flag": True,
        "names": [1, 2],
        "off": None,
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["model"], "write key=value"),
        (["=3"], "write key=value"),
        (["a..b=3"], "write key=value"),
        (["a=1", "a=2"], "given twice"),
        (["a=1", "a.b=2"], "it has no keys"),
    ],
)
def test_an_assignment_that_makes_no_sense_is_an_error(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_assignments(texts)


def test_settings_are_converted_with_their_nested_parts() -> None:
    assert convert({"model": "m", "lora": {"rank": 2}}, Settings) == Settings(model="m", lora=Lora(rank=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "m", "groupsize": 4}, r"no setting 'groupsize'. Did you mean 'group_size'\?"),
        ({"model": "m", "lora": {"rnk": 4}}, r"algorithm 'x', lora has no setting 'rnk'. Did you mean 'rank'\?"),
        ({"model": "m", "group_size": "four"}, r"Expected `int`, got `str`.*group_size"),
        ({}, "missing required field `model`"),
    ],
)
def test_wrong_settings_name_the_key_that_was_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(settings, Settings, "algorithm 'x'")


def test_a_class_with_keywords_is_checked_like_a_struct() -> None:
    class Algorithm:
        def __init__(self, *, model: str, steps: int = 3) -> None:
            self.model, self.steps = model, steps

    assert construct(Algorithm, {"model": "m"}, "x").steps == 3
    with pytest.raises(ConfigError, match=r"Did you mean 'steps'\?"):
        construct(Algorithm, {"model": "m", "step": 3}, "x")
    with pytest.raises(ConfigError, match="needs model: pass --set model="):
        construct(Algorithm, {}, "x")
    assert construct(Settings, {"model": "m"}, "x") == Settings(model="m")
