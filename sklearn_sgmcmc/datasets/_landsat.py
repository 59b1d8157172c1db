"""The Statlog (Landsat Satellite) data set with its published split."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from sklearn_sgmcmc._checks import check_flag

if TYPE_CHECKING:
    import pandas as pd

_N_TRAIN = 4435

# In the order of the UCI labels 1, 2, 3, 4, 5 and 7.
_TARGET_NAMES = (
    "red soil",
    "cotton crop",
    "grey soil",
    "damp grey soil",
    "soil with vegetation stubble",
    "very damp grey soil",
)


@overload
def load_landsat(*, return_X_y: Literal[False] = ..., as_frame: bool = ...) -> Bunch: ...


@overload
def load_landsat(*, return_X_y: Literal[True], as_frame: Literal[False] = ...) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...


@overload
def load_landsat(*, return_X_y: Literal[True], as_frame: Literal[True]) -> tuple[pd.DataFrame, pd.Series[int]]: ...


@overload
def load_landsat(*, return_X_y: bool, as_frame: bool = ...) -> Any: ...


def load_landsat(*, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Load the Statlog (Landsat Satellite) data set (classification).

    Each row describes a patch of 3 x 3 pixels of a satellite image in four
    spectral bands. The target is the kind of land at the central pixel.

    =================  ======================
    Classes            6
    Samples            6435
    Training samples   4435 (the first rows)
    Test samples       2000 (the last rows)
    Features           36
    Feature values     whole numbers, 27 - 157
    =================  ======================

    Parameters
    ----------
    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        If True, return the data as a pandas DataFrame and the target as a
        pandas Series. Needs pandas.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Object with these attributes:

        data : ndarray or DataFrame of shape (6435, 36), float64
            Digital numbers of the scanner, on a scale from 0 (black) to
            255 (white). They measure reflected light and have no physical unit.
            The four bands of one pixel are adjacent columns.
        target : ndarray or Series of shape (6435,), int64
            Labels as numbered by UCI: 1, 2, 3, 4, 5 or 7. There is no class 6.
        feature_names : list of str, length 36
            ``band1_px1``, ``band2_px1``, ..., ``band4_px9``. Pixels run left to
            right and then top to bottom, so ``px5`` is the central one.
        target_names : ndarray of shape (6,), str
            Class names, in ascending order of the labels.
        frame : DataFrame of shape (6435, 37) or None
            Data and a column ``target``; None unless ``as_frame=True``.
        train_indices : ndarray of shape (4435,), int64
            Row numbers of the published training set.
        test_indices : ndarray of shape (2000,), int64
            Row numbers of the published test set.
        DESCR : str
            Description, source and licence of the data set.

    (data, target) : tuple
        Only if ``return_X_y=True``: the first two attributes above.

    Raises
    ------
    ValueError
        If ``return_X_y`` or ``as_frame`` is not a bool.
    ImportError
        If ``as_frame=True`` and pandas is not installed.

    Examples
    --------
    >>> from sklearn_sgmcmc.datasets import load_landsat
    >>> landsat = load_landsat()
    >>> X_train = landsat.data[landsat.train_indices]
    >>> y_train = landsat.target[landsat.train_indices]
    >>> X_train.shape, y_train.shape
    ((4435, 36), (4435,))
    >>> print(landsat.target_names[0])
    red soil
    """
    check_flag("return_X_y", return_X_y)
    check_flag("as_frame", as_frame)
    data, target = _read_arrays()
    bunch = Bunch(
        data=data,
        target=target,
        frame=None,
        feature_names=_feature_names(),
        target_names=np.array(_TARGET_NAMES),
        train_indices=np.arange(_N_TRAIN, dtype=np.int64),
        test_indices=np.arange(_N_TRAIN, len(target), dtype=np.int64),
        DESCR=_read_description(),
    )
    if as_frame:
        _convert_to_frame(bunch)
    return (bunch.data, bunch.target) if return_X_y else bunch


def _read_arrays() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    path = files("sklearn_sgmcmc.datasets") / "data" / "landsat.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return arrays["data"].astype(np.float64), arrays["target"].astype(np.int64)


def _read_description() -> str:
    path = files("sklearn_sgmcmc.datasets") / "descr" / "landsat.rst"
    return path.read_text(encoding="utf-8")


def _feature_names() -> list[str]:
    return [f"band{band}_px{pixel}" for pixel in range(1, 10) for band in range(1, 5)]


def _convert_to_frame(bunch: Bunch) -> None:
    """Replace the arrays of ``bunch`` by pandas objects, and fill ``frame``."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "as_frame=True needs pandas, which is not installed. Run 'pip install pandas' or pass as_frame=False."
        ) from error
    bunch.data = pd.DataFrame(bunch.data, columns=bunch.feature_names)
    bunch.target = pd.Series(bunch.target, name="target")
    bunch.frame = bunch.data.assign(target=bunch.target)
