"""The calculator works out sums and nothing else."""

from __future__ import annotations

import pytest
from calculator import calculate, evaluate


@pytest.mark.parametrize(
    ("expression", "value"), [("5+4", 9), (" 6 * 13 ", 78), ("24/8", 3), ("-3-4", -7), ("2*(3+4)", 14), ("1.5*2", 3)]
)
def test_sums(expression: str, value: float) -> None:
    assert evaluate(expression) == value
    assert calculate.invoke({"expression": expression}) == value


REFUSED = """7 (7) -7 2**9 9//2 7%2 1,2 a+1 __import__('os') 1+ 8/0 (1+2 (1)(2) ()+1 1<2 1_0+1 0x1+1 1e5+1 1j+1 +1+1 007+1 .+1"""


@pytest.mark.parametrize("expression", [*REFUSED.split(), "", " ", "1\n+1", "1+1" * 20])
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        evaluate(expression)


def test_the_largest_numbers_stay_numbers() -> None:
    assert evaluate("9" * 19 + "*" + "9" * 19) == pytest.approx(1e38)
