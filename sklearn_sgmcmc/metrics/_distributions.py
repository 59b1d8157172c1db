"""Metrics of predictive distributions: Gaussians and equal mixtures of Gaussians."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.utils import check_array, gen_batches

from sklearn_sgmcmc.metrics._averages import Average, as_columns, binary_exponents, over_outputs, row_weights
from sklearn_sgmcmc.predictive import mixture_log_density
from sklearn_sgmcmc.threads import isolated

CHUNK_ELEMENTS = 2**15
"""Draws x targets held at once by ``mixture_crps``: a few arrays of this size fit the cache."""
FAR = 20.0
"""m / r from which E|N(m, r^2 / 2)| is |m| to float64; the exponential is far slower where it underflows."""


def mixture_log_loss(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean negative log density of the targets under equal mixtures of Gaussians, in nats.

    L = -(1 / n) sum_n log (1 / M) sum_m prod_k N(y_nk; mean_mnk, std_mnk^2): outputs are independent given the component. It
    equals minus the mean of a regressor's ``log_predictive_density``. Source: Gneiting & Raftery 2007, section 4.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std > 0
        What ``predict_mixture`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.

    Returns
    -------
    loss : float
        Falls by log(a) per output if y is measured in units a times as large.

    Raises
    ------
    ValueError
        If a standard deviation is not positive, shapes do not agree, or a target has density 0 in float64.

    Examples
    --------
    >>> round(mixture_log_loss([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]), 4)
    1.4189
    """
    y, mean, std, weight = _mixture_arguments(y_true, mean, std, sample_weight)
    _check_density(std)
    log_density = mixture_log_density(y, mean, std)
    if not np.isfinite(log_density).all():
        row = int(np.argmin(np.isfinite(log_density)))
        raise ValueError(
            f"y_true={y[row].tolist()} at row {row} is so far from its prediction that the log density overflows float64: give it "
            "in the units of mean and std, or use the CRPS."
        )
    return -float(np.average(log_density, weights=weight))


def gaussian_log_loss(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean negative log density of the targets under Gaussians, in nats.

    The parameters are those of ``mixture_log_loss``, with ``mean`` and ``std`` shaped like y.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays shaped like y; std > 0
        What ``predict(X, return_std=True)`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts.

    Returns
    -------
    loss : float
        In nats per row.

    Examples
    --------
    >>> round(gaussian_log_loss([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    return mixture_log_loss(y_true, _one_component("mean", mean), _one_component("std", std), sample_weight=sample_weight)


def mixture_crps(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the mean continuous ranked probability score of equal mixtures of Gaussians, in the units of y.

    CRPS(F, y) = integral (F(x) - 1{x >= y})^2 dx = (1 / M) sum_i A(y - mean_i, std_i^2)
    - (1 / 2 M^2) sum_ij A(mean_i - mean_j, std_i^2 + std_j^2), with A(m, v) = E|N(m, v)|. Exact; time grows with M^2, memory does
    not. Source: Grimit et al. 2006.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std >= 0
        What ``predict_mixture`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    crps : float, or ndarray of shape (n_outputs,)
        At least 0; the absolute error of a forecast that is a point.

    Examples
    --------
    >>> round(mixture_crps([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]), 4)
    0.3594
    """
    y, mean, std, weight = _mixture_arguments(y_true, mean, std, sample_weight)
    n_draws = len(mean)
    exponent = binary_exponents(y, mean, std)
    y, mean, std = (np.ldexp(array, -exponent) for array in (y, mean, std))
    columns = [array.reshape(len(array), -1) for array in (y[None], mean, np.square(std))]
    score = np.empty(columns[0].shape[1])
    with isolated():
        for some in gen_batches(len(score), max(1, CHUNK_ELEMENTS // n_draws)):
            target, center, variance = (torch.from_numpy(np.array(column[:, some], order="C")) for column in columns)
            spread = _mean_absolute(torch.zeros_like(center), 2 * variance).sum(dim=0)
            for lag in range(1, n_draws):
                pair = _mean_absolute(center[lag:] - center[:-lag], variance[lag:] + variance[:-lag])
                spread += 2 * pair.sum(dim=0)
            score[some] = (_mean_absolute(target - center, variance).mean(dim=0) - spread / (2 * n_draws**2)).numpy()
    by_output = np.average(score.reshape(y.shape), axis=0, weights=weight)
    return over_outputs(np.ldexp(by_output, exponent), multioutput)


def gaussian_crps(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: str = "uniform_average",
) -> Average:
    """Return the mean continuous ranked probability score of Gaussians, in the units of y.

    CRPS = s [z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)], z = (y - mean) / s. Source: Gneiting et al. 2005, equation 5.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays shaped like y; std >= 0
        What ``predict(X, return_std=True)`` returns.
    sample_weight : array of shape (n_rows,), optional
        Counts.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    crps : float, or ndarray of shape (n_outputs,)
        In the units of y.

    Examples
    --------
    >>> round(gaussian_crps([0.0], [0.0], [1.0]), 4)
    0.2337
    """
    components = _one_component("mean", mean), _one_component("std", std)
    return mixture_crps(y_true, *components, sample_weight=sample_weight, multioutput=multioutput)


def probability_integral_transform(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Return the predictive distribution function of equal mixtures of Gaussians at the targets: uniform if calibrated.

    u = (1 / M) sum_m Phi((y - mean_m) / std_m). The central interval of coverage c holds y where |2 u - 1| <= c. Source: Dawid
    1984; Gneiting et al. 2007.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    mean, std : arrays of shape (n_draws, n_rows) or (n_draws, n_rows, n_outputs); std > 0
        What ``predict_mixture`` returns.

    Returns
    -------
    probability : ndarray shaped like y
        In [0, 1].

    Raises
    ------
    ValueError
        If a standard deviation is not positive, or shapes do not agree.

    Examples
    --------
    >>> probability_integral_transform([0.0], [[-1.0], [1.0]], [[1.0], [1.0]]).tolist()
    [0.5]
    """
    y, mean, std, _ = _mixture_arguments(y_true, mean, std, None)
    _check_density(std)
    with np.errstate(over="ignore"):
        z = (y - mean) / std
    return np.asarray(ndtr(z).mean(axis=0).reshape(np.shape(y_true)))


def sharpness(std: ArrayLike, *, sample_weight: ArrayLike | None = None, multioutput: str = "uniform_average") -> Average:
    """Return the root mean square of predictive standard deviations: how narrow the forecasts are, whether right or wrong.

    Of calibrated forecasts the sharpest is the best. Source: Gneiting et al. 2007; Kuleshov et al. 2018.

    Parameters
    ----------
    std : array of shape (n_rows,) or (n_rows, n_outputs), >= 0
        What ``predict(X, return_std=True)`` returns second.
    sample_weight : array of shape (n_rows,), optional
        Counts: a row of weight k counts as k rows; not negative.
    multioutput : {"uniform_average", "raw_values"}, default "uniform_average"
        Whether to average over outputs or to return one value for each.

    Returns
    -------
    sharpness : float, or ndarray of shape (n_outputs,)
        In the units of y.

    Examples
    --------
    >>> round(sharpness([3.0, 4.0]), 3)
    3.536
    """
    columns = as_columns("std", std)
    _check_spread(columns)
    exponent = binary_exponents(columns)
    squares = np.square(np.ldexp(columns, -exponent))
    mean_square = np.average(squares, axis=0, weights=row_weights(sample_weight, len(columns)))
    return over_outputs(np.ldexp(np.sqrt(mean_square), exponent), multioutput)


def _mean_absolute(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Return E|N(mean, variance)| = m erf(m / r) + r exp(-m^2 / r^2) / sqrt(pi), r^2 = 2 variance."""
    r = (2 * variance).sqrt_().clamp_min_(np.finfo(np.float64).tiny)  # a point mass: |m|
    z = (mean / r).clamp_(-FAR, FAR)
    return torch.erf(z).mul_(mean).add_(r.mul_(z.square_().neg_().exp_()), alpha=1 / math.sqrt(math.pi))


def _one_component(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return values shaped like y as those of a mixture of one."""
    return as_columns(name, values)[None]


def _check_spread(std: NDArray[np.float64]) -> None:
    if (std < 0).any():
        raise ValueError(f"std holds {std.min()}: a standard deviation must be >= 0; a variance or a logarithm is not one.")


def _check_density(std: NDArray[np.float64]) -> None:
    if not std.all():
        raise ValueError("std holds 0: a density needs standard deviations > 0; the CRPS is defined for 0, too.")


def _mixture_arguments(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return targets (n, K), component means and standard deviations (M, n, K), and weights (n,)."""
    y = as_columns("y_true", y_true)
    arrays: list[NDArray[np.float64]] = []
    for name, values in (("mean", mean), ("std", std)):
        array = check_array(values, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name=name)
        components = array.reshape(*array.shape[:2], -1) if array.ndim in (2, 3) else array
        if components.shape[1:] != y.shape or (arrays and len(components) != len(arrays[0])):
            raise ValueError(
                f"{name} has shape {array.shape}, which does not fit the targets' {np.shape(y_true)}: mean and std must be "
                "(n_draws, n_rows) or (n_draws, n_rows, n_outputs), as predict_mixture returns them; gaussian_crps and "
                "gaussian_log_loss take arrays shaped like y."
            )
        arrays.append(components)
    _check_spread(arrays[1])
    return y, arrays[0], arrays[1], row_weights(sample_weight, len(y))
