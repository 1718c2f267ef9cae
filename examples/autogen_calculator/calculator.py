"""The calculator tool: it works out sums and can do nothing else."""

from __future__ import annotations

import ast
import operator

LONGEST = 40  # characters of an expression; bounds the size of its numbers and the depth of its brackets too
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression: str) -> str:
    """Work out a sum with + - * / and brackets."""
    value = evaluate(expression)
    return str(int(value)) if value.is_integer() else str(value)


def evaluate(expression: str) -> float:
    """The value of ``expression``. Raises ValueError when it is anything but a sum of numbers, or has no value.

    The expression is parsed and walked, never executed. A number alone is no sum: there must be an operation.
    """
    text = expression.strip()
    if not text or len(text) > LONGEST or set(text) - set("0123456789+-*/(). "):
        raise ValueError(f"{expression[: LONGEST + 1]!r} is not a sum of at most {LONGEST} characters")
    try:
        body = ast.parse(text, mode="eval").body
        if not any(isinstance(node, ast.BinOp) for node in ast.walk(body)):
            raise ValueError(f"there is nothing to work out in {expression!r}")
        return _value(body)
    except (SyntaxError, ArithmeticError) as error:
        raise ValueError(f"{expression!r} has no value") from error


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return float(OPERATIONS[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError(f"the calculator knows + - * / alone, not {type(node).__name__}")
