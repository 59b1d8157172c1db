"""The base of every object that a user may hand to an estimator: samplers, schedules, priors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import torch


class Parameters:
    """Give a dataclass scikit-learn's ``get_params`` and ``set_params``.

    The fields are the parameters. Values pass through by identity and are neither coerced nor checked before a run, so that
    ``sklearn.base.clone``, ``GridSearchCV`` (``sampler__friction``) and printing work as they do for estimators.
    """

    _largest: ClassVar[float] = sys.float_info.max
    """Largest absolute value of a number."""

    def check_field(self, name: str, rule: str, holds: Callable[[Any], Any]) -> None:
        """Raise ValueError, naming the field, its value, the rule and the default, unless ``holds(value)`` for every chain.

        Numbers must be finite, and at most ``_largest``; a value of the wrong type breaks the rule.
        """
        value = getattr(self, name)
        try:
            number = not (value is None or isinstance(value, str | Parameters) or callable(value))
            held = not number or bool((torch.as_tensor(value, dtype=torch.float64).abs() <= self._largest).all())
            foreign = isinstance(value, bool | np.bool_ | np.ndarray | Decimal | Fraction)  # torch computes with none of them
            ok = held and not foreign and bool(torch.as_tensor(holds(value)).all())
        except (AttributeError, OverflowError, TypeError, RuntimeError, ValueError):
            ok = False
        if not ok:
            default = next(field.default for field in dataclasses.fields(self) if field.name == name)  # type: ignore[arg-type]
            limit = f" and at most {self._largest:g}" if isinstance(value, int | float) and value > self._largest else ""
            raise ValueError(f"{type(self).__name__}.{name}={value!r} must be {rule}{limit}; {default!r} is the default.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also the parameters of nested objects as ``name__field``."""
        params: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            params[field.name] = value
            if deep and isinstance(value, Parameters):
                params |= {f"{field.name}__{key}": inner for key, inner in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set fields by name (``name__field`` reaches into a nested object) and return ``self``.

        Raises ValueError for a name that is not a field.
        """
        known = self.get_params(deep=False)
        for name, value in params.items():
            field, _, inner = name.partition("__")
            if field not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {field!r}; its parameters are {', '.join(known)}.")
            if inner:
                nested = getattr(self, field)
                if not isinstance(nested, Parameters):
                    raise ValueError(f"{type(self).__name__}.{field}={nested!r} has no parameter {inner!r}: it is no object.")
                nested.set_params(**{inner: value})
            else:
                setattr(self, field, value)
        return self
