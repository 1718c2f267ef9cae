"""The calculator works out sums and does nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("expression", "value"),
    [("5+4", "9"), ("3*(4+5)", "27"), ("7/2", "3.5"), ("-2+5", "3"), ("1-1", "0"), (" 6 * 7 ", "42"), ("0.5*3", "1.5")],
)
def test_sums_have_their_value(calculator: ModuleType, expression: str, value: str) -> None:
    assert calculator.calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "7", "x+1", "2**9", "9//2", "1/0", "5+", "(1+2", "1, 2", "__import__('os')", "1+1;2", "1+" * 30 + "1", "05+4"],
)
def test_anything_else_is_a_value_error(calculator: ModuleType, expression: str) -> None:
    with pytest.raises(ValueError, match=r"sum|value|work out|alone"):
        calculator.calculate(expression)
