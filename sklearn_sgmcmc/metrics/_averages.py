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
    if len(weight) != n_rows or not (weight >= 0).all() or not weight.any():
        raise ValueError(
            f"sample_weight={sample_weight!r} must hold {n_rows} numbers >= 0, at least one of them positive: one for each row."
        )
    return weight


def as_columns(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return finite values of shape (n_rows,) or (n_rows, n_outputs) as (n_rows, n_outputs)."""
    array = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    return np.asarray(array.reshape(len(array), -1))
