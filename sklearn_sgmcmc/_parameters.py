"""The base of every object that a user may hand to an estimator: samplers, schedules, priors."""

from __future__ import annotations

import dataclasses
from typing import Any, Self


class Parameters:
    """Give a dataclass scikit-learn's ``get_params`` and ``set_params``.

    The fields are the parameters. Values pass through by identity and are neither coerced nor checked before a run, so that
    ``sklearn.base.clone``, ``GridSearchCV`` (``sampler__friction``) and printing work as they do for estimators.
    """

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
                getattr(self, field).set_params(**{inner: value})
            else:
                setattr(self, field, value)
        return self
