"""Checks of parameters: every error names the parameter, its value, the rule and the fix; and numbers as messages give them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Context
from typing import Any


def check_integer(name: str, value: Any, *, low: int, fix: str) -> int:
    """Return ``value`` as an int if it is an integer >= ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name}={value!r} must be an integer >= {low}; {fix}.")
    return int(value)


def check_real(
    name: str,
    value: Any,
    *,
    rule: str,
    fix: str,
    low: float = 0.0,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float if it is a finite number in [low, high]; the interval is open where ``open_...`` says so."""
    try:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    outside = not (math.isfinite(number) and low <= number <= high)
    if outside or (open_low and number == low) or (open_high and number == high):
        raise ValueError(f"{name}={value!r} must be {rule}; {fix}.")
    return number


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, known))}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name}={value!r} must be True or False; use one of the two.")
    return bool(value)


def clear_of(value: float, limit: float, *, digits: int = 3) -> str:
    """Return a number as text that lies on the same side of a limit as the number, with more digits where it takes more."""
    side = (value > limit, value < limit)
    texts = (f"{value:.{number}g}" for number in range(digits, 18))  # 17 digits are the number itself
    return next(text for text in texts if (float(text) > limit, float(text) < limit) == side)


def rounded_down(limit: float, *, digits: int = 3) -> str:
    """Return a positive limit as text that does not exceed it: whoever follows the advice stays within."""
    context = Context(prec=digits, rounding=ROUND_FLOOR)
    return f"{float(context.create_decimal_from_float(limit)):g}"
