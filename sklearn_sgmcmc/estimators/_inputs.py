"""scikit-learn's checks of inputs, and of what they let pass: masked entries, dates, and targets that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array as check_any_array
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data as validate_any_data


def validate_data(estimator: Any, X: Any, y: Any = "no_validation", *, y_numeric: bool = False, **how: Any) -> Any:
    """Return X, or X and y, checked by scikit-learn's function of this name; numeric targets are numbers afterwards."""
    _check_unmasked("X", X)
    _check_unmasked("y", y)
    _check_undated("X", X)
    if y_numeric:
        _check_undated("y", y)
        how["y_numeric"] = True
    else:
        check_labels("y", y)
    with np.errstate(invalid="ignore"):  # scikit-learn adds all values up, and the largest ones of both signs give NaN
        found = validate_any_data(estimator, X, y, **how)
    return (found[0], _numbers(found[1])) if y_numeric else found


def check_array(values: Any, *, input_name: str, **how: Any) -> NDArray[Any]:
    """Return an array checked by scikit-learn's function of this name."""
    _check_unmasked(input_name, values)
    _check_undated(input_name, values)
    with np.errstate(invalid="ignore"):
        return np.asarray(check_any_array(values, input_name=input_name, **how))


def generator(random_state: Any) -> np.random.RandomState:
    """Return the generator that a parameter ``random_state`` means; raise ValueError if it means none."""
    try:
        random: np.random.RandomState = check_random_state(random_state)
    except ValueError as error:
        rule = "None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState; 0, say, makes results repeatable"
        raise ValueError(f"random_state={random_state!r} must be {rule} ({error}).") from None
    return random


def _check_unmasked(name: str, values: Any) -> None:
    """Raise ValueError if entries are masked: as a plain array, they would be used."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} has {int(values.mask.sum())} masked entries: drop these rows, or impute with {name}.filled().")


def _check_undated(name: str, values: Any) -> None:
    """Raise ValueError for dates, times and durations: the numbers behind them depend on their unit, which arrays do not share."""
    types = np.asarray(getattr(values, "dtypes", getattr(values, "dtype", None)), dtype=object)  # one, or one per column
    dated = [str(kind) for kind in types.ravel() if str(kind).lower().startswith(("date", "time", "duration"))]
    if dated:
        raise ValueError(f"{name} has the dtype {dated[0]}: a date is no number; subtract one and divide by a unit of time.")


def check_labels(name: str, labels: Any) -> None:
    """Raise ValueError if labels have no order among each other: some are missing, or they are of several kinds."""
    labels = np.asarray(labels)
    if labels.dtype != object:
        return
    try:
        sorted(set(labels.ravel()))
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.ravel()})
        raise ValueError(
            f"{name} has entries of the types {', '.join(kinds)}, which cannot be sorted: drop rows without a label (None, NA, "
            "NaN), and make all labels strings or all numbers."
        ) from None


def _numbers(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets that are numbers or stand for numbers; raise ValueError otherwise."""
    if y.dtype.kind in "biuf":
        return y
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y of dtype {y.dtype} holds what is no number ({error}): a regressor needs numeric targets.") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"y of dtype {y.dtype} contains NaN or infinity: drop these rows, or impute.")
    return numbers
