"""Computes derived values with simpleeval, a package of the extra ``suite``."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Callable, Dict, FrozenSet, Mapping

#: A name in the original runner's syntax, which inserts the value.
BRACED = re.compile(r"\{([A-Za-z_]\w*)\}")
FUNCTIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (abs, min, max, round, int, float)
}


class Expression:
    """An expression over numbers."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for syntax, functions and names that no expression may have."""
        self.text = text.strip()
        try:
            tree = ast.parse(BRACED.sub(r"(\1)", self.text), mode="eval")
        # A null character is a ValueError, deep nesting one of the last two.
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{self.text!r} is not an expression: {error}") from None
        self._body = tree.body
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        #: The names that it reads.
        self.names: FrozenSet[str] = frozenset(read - FUNCTIONS.keys())
        try:
            from simpleeval import InvalidExpression
        except ModuleNotFoundError:
            raise ValueError("it needs simpleeval: pip install simpleeval") from None
        try:
            self._compute(dict.fromkeys(self.names, 1.0))
        except (InvalidExpression, RecursionError) as error:
            raise ValueError(f"{self.text!r}: {error}") from None
        except (ArithmeticError, TypeError, ValueError):
            pass  # other values may have a result

    def value(self, values: Mapping[str, float]) -> float:
        """Return its value, given the values of its names. Raises ValueError."""
        from simpleeval import InvalidExpression

        try:
            found = self._compute(values)
        except (InvalidExpression, ArithmeticError, TypeError, ValueError) as error:
            raise ValueError(f"{self.text!r}: {error}") from None
        if not math.isfinite(found):
            raise ValueError(f"{self.text!r} has no finite value")
        return found

    def _compute(self, values: Mapping[str, float]) -> float:
        from simpleeval import SimpleEval

        evaluator = SimpleEval(functions=FUNCTIONS, names=dict(values))
        return float(evaluator.eval(self.text, self._body))
