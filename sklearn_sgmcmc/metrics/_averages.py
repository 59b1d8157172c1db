"""What the metrics share: checked weights and columns, averages over rows and outputs."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, column_or_1d

from sklearn_sgmcmc._checks import check_choice

Average: TypeAlias = "float | NDArray[np.float64]"


def average(score: NDArray[np.float64], weight: NDArray[np.float64], multioutput: str) -> Average:
    """Return the weighted mean of scores (n, K) over rows and, if asked, over outputs."""
    return over_outputs(np.average(score, axis=0, weights=weight), multioutput)


def over_outputs(score: NDArray[np.float64], multioutput: str) -> Average:
    """Return scores by output, or their mean."""
    check_choice("multioutput", multioutput, ("uniform_average", "raw_values"))
    return score if multioutput == "raw_values" else float(score.mean())


def row_weights(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Return one weight >= 0 per row, not all of them zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    given = column_or_1d(check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"))
    weight = np.asarray(given, dtype=np.float64)
    with np.errstate(over="ignore"):
        usable = (weight >= 0).all() and 0 < weight.sum() < np.inf
    if len(weight) != n_rows or not usable:
        raise ValueError(
            f"sample_weight={sample_weight!r} must hold {n_rows} numbers >= 0, one for each row, with a positive and finite sum."
        )
    return weight


def binary_exponents(*columns: NDArray[np.float64]) -> NDArray[np.int_]:
    """Return the exponent of two just above the largest of all values of each output, (K,), from arrays (..., K).

    ``np.ldexp(column, -exponent)`` is exact and lies in [-1, 1]: squares neither overflow nor lose the largest values.
    """
    largest = np.max([np.abs(column).max(axis=tuple(range(column.ndim - 1))) for column in columns], axis=0)
    return np.asarray(np.frexp(largest)[1])


def as_columns(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return finite values of shape (n_rows,) or (n_rows, n_outputs) as (n_rows, n_outputs)."""
    array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    return np.asarray(array.reshape(len(array), -1))
