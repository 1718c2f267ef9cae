"""The calculator tool: it works out sums and can do nothing else."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from langchain_core.tools import tool

LONGEST = 40  # characters of an expression; bounds the size of numbers and the depth of nesting too
OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@tool
def calculate(expression: str) -> float:
    """Work out a sum of decimal numbers with + - * / and brackets, for example "3*(4+5)"."""
    return evaluate(expression)


def evaluate(expression: str) -> float:
    """The value of ``expression``. Raises ValueError when it is anything but a sum, or has no value.

    The expression is parsed and walked, never executed. A number alone is no sum: there must be an operation.
    """
    if not re.fullmatch(rf"[0-9+\-*/(). ]{{1,{LONGEST}}}", expression):
        raise ValueError(f"not a sum of at most {LONGEST} characters: {expression[: LONGEST + 1]!r}")
    try:
        body = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a sum: {expression!r}") from error
    if not any(isinstance(node, ast.BinOp) for node in ast.walk(body)):
        raise ValueError(f"there is nothing to work out in {expression!r}")
    try:
        return _value(body)
    except ArithmeticError as error:
        raise ValueError(f"{expression!r} has no value") from error


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"the calculator knows + - * / alone, not {type(node).__name__}")
