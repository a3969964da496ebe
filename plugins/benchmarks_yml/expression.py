"""Computes derived values: an expression is parsed and evaluated here, never run as Python."""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from typing import Any, Callable, Dict, FrozenSet, Mapping, Tuple, Type

LONGEST = 500  # characters
#: A name in the original runner's syntax, which inserts the value.
BRACED = re.compile(r"\{([A-Za-z_]\w*)\}")
FORM = "numbers, names, + - * / // % **, brackets, abs, min, max, round, int and float"


def _power(base: float, exponent: float) -> float:
    found = base**exponent
    if isinstance(found, complex):
        raise ValueError("a root of a negative number is not a real number")
    return float(found)


OPERATORS: Dict[Type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _round(value: float, digits: float = 0.0) -> float:
    return float(round(value, int(digits)))


#: Name -> (the function, fewest and most arguments).
FUNCTIONS: Dict[str, Tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1),
    "min": (min, 2, 100),
    "max": (max, 2, 100),
    "round": (_round, 1, 2),
    "int": (math.trunc, 1, 1),
    "float": (float, 1, 1),
}


class Expression:
    """An expression. All numbers are floats, so that none can grow without bound."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for anything but arithmetic."""
        self.text = text.strip()
        if len(self.text) > LONGEST:
            raise ValueError(f"the expression is longer than {LONGEST} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(BRACED.sub(r"(\1)", self.text), mode="eval")
            self._body = tree.body
            #: The names that it reads.
            self.names: FrozenSet[str] = frozenset(_names(self._body))
        # A null character is a ValueError, deep nesting one of the last two.
        except (SyntaxError, RecursionError, MemoryError) as error:
            problem = getattr(error, "msg", None) or "it is nested too deeply"
            raise ValueError(
                f"{self.text!r} is not an expression: {problem}; it may have {FORM}"
            ) from None

    def value(self, values: Mapping[str, float]) -> float:
        """Return its value, given the values of its names. Raises ValueError."""
        try:
            found = _value(self._body, values)
        except ZeroDivisionError:
            raise ValueError(f"{self.text!r} divides by zero") from None
        except (OverflowError, RecursionError):
            raise ValueError(f"{self.text!r} has no finite value") from None
        except ValueError as error:
            raise ValueError(f"{self.text!r}: {error}") from None
        if not math.isfinite(found):
            raise ValueError(f"{self.text!r} has no finite value")
        return float(found)


def _names(node: ast.AST) -> FrozenSet[str]:
    """Return the names that a node reads. Raises ValueError for anything but arithmetic."""
    if isinstance(node, ast.Constant):
        _number(node.value)
        return frozenset()
    if isinstance(node, ast.Name):
        return frozenset([node.id])
    if isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in OPERATORS:
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        return frozenset().union(*map(_names, operands))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        _, fewest, most = FUNCTIONS.get(node.func.id, (None, 1, 0))
        if fewest <= len(node.args) <= most:
            return frozenset().union(*map(_names, node.args))
    raise ValueError(f"an expression may have {FORM}")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{str(value)[:40]!r} is not a number; an expression may have {FORM}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number of the expression is too large") from None


def _value(node: ast.AST, values: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant):
        return _number(node.value)
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise ValueError(f"{node.id} has no value")
        return float(values[node.id])
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_value(node.operand, values))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    function = FUNCTIONS[node.func.id][0]
    return function(*(float(_value(argument, values)) for argument in node.args))
