"""From validated arrays to the rows that a chain sees: weights, canonical rows, moments."""

from __future__ import annotations

import math
import numbers
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length

from sklearn_sgmcmc._checks import clear_of
from sklearn_sgmcmc.batches import DenseRows, LazyRows, RowSource, Scaling, dense_rows
from sklearn_sgmcmc.estimators._inputs import check_array
from sklearn_sgmcmc.estimators._settings import MINIBATCH_ROWS

CANONICAL_ELEMENTS = 20_000_000
"""Rows times columns up to which rows are sorted and merged (160 MB in float64)."""
CANONICAL_REPEATS = 20
"""Rows per row of a full batch up to which it is worth looking whether few enough of them are distinct."""
FULL_BATCH_ELEMENTS = 2**17
"""Rows times columns of a full batch that is not asked for: beyond, steps on all rows cost many times those on minibatches."""
COPY_BYTES = 2**25
"""Size of the scaled copy up to which rows are scaled once; beyond, batch by batch."""
CHUNK, CHUNK_ELEMENTS = 4096, 2**22
"""Most rows, and numbers, that are made dense at once."""
LEAST_WEIGHT = 0.1
"""Weight of a typical row below which weights can hardly be meant as counts."""
LARGEST_WEIGHT = 1e15
"""Weights lie between this and its inverse: far beyond any count, and within the range of float32 when squared."""


@dataclass(frozen=True)
class TrainingRows:
    """Rows as they are sampled.

    x : (n, d) array or CSR matrix, unscaled. target : (n, k) float64, unscaled, or uint8, one-hot. weight : (n,) float64 > 0.
    batch_size : rows per step; n at full batch.
    """

    x: Any
    target: NDArray[Any]
    weight: NDArray[np.float64]
    batch_size: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.weight)

    @property
    def full_batch(self) -> bool:
        """Whether every step takes all rows."""
        return self.batch_size == self.n_rows

    @property
    def n_data(self) -> float:
        """Total weight N."""
        return math.fsum(self.weight)

    def source(self, scaling: Scaling, target: NDArray[Any], dtype: torch.dtype, device: torch.device) -> RowSource:
        """Return the rows scaled for sampling, with the encoded or scaled ``target``."""
        kind = np.float64 if dtype == torch.float64 else np.float32
        weights = torch.tensor(self.weight, dtype=dtype)
        if scipy.sparse.issparse(self.x) or self.x.size * dtype.itemsize > COPY_BYTES:
            chunk = _chunk(self.x.shape[1])
            for start in range(0, self.x.shape[0], chunk):
                scaling.apply(dense_rows(self.x, slice(start, start + chunk)), kind)  # raises if the chains could not hold it
            compact = target if target.dtype == np.uint8 else target.astype(kind)
            return LazyRows(self.x, scaling, torch.from_numpy(compact), weights, dtype, device)
        targets = torch.from_numpy(target).to(device=device, dtype=dtype)
        return DenseRows(torch.from_numpy(scaling.apply(self.x, kind)).to(device), targets, weights.to(device))


def row_weights(x: Any, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
    """Return one weight per row of ``x``, (n,) float64; raise ValueError where a weight is no count."""
    if sample_weight is None:
        return np.ones(x.shape[0])
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(x.shape[0], sample_weight)
    weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight", ensure_min_samples=0)
    if weight.ndim != 1:
        raise ValueError(f"sample_weight has shape {weight.shape}: it must be 1D, one weight per row of X.")
    check_consistent_length(x, weight)
    if not weight.min() >= 0:  # NaN, which scikit-learn lets pass with assume_finite, included
        raise ValueError(f"sample_weight has the value {weight.min()}: weights are counts, make them >= 0.")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: give at least one row a positive weight.")
    least, largest = float(weight[weight > 0].min()), float(weight.max())
    if largest > LARGEST_WEIGHT or least < 1 / LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight (times class_weight, if there is one) reaches from {clear_of(least, 1 / LARGEST_WEIGHT)} to "
            f"{clear_of(largest, LARGEST_WEIGHT)}: weights are counts between {1 / LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}; bring "
            "them near 1."
        )
    return np.asarray(weight)


def training_rows(
    x: Any, target: NDArray[Any], weight: NDArray[np.float64], batch_size: int | None, full_batch_rows: int
) -> TrainingRows:
    """Drop rows of weight zero; at full batch, sort the rest and merge identical rows.

    ``batch_size`` None is full batch up to ``full_batch_rows`` distinct rows of ``FULL_BATCH_ELEMENTS`` numbers in all.
    At full batch a row of weight k and k copies of it are then the same data bit for bit, and row order does not matter.
    """
    keep = weight > 0
    if not keep.all():
        x, target, weight = x[np.flatnonzero(keep)], target[keep], weight[keep]
    n_rows = x.shape[0]
    largest = full_batch_rows if batch_size is None else batch_size
    if n_rows <= CANONICAL_REPEATS * largest and n_rows * x.shape[1] <= CANONICAL_ELEMENTS:
        canonical = _canonical(dense_rows(x, slice(None)).astype(np.float64), target, weight)
        few = batch_size is not None or canonical[0].size <= FULL_BATCH_ELEMENTS
        if len(canonical[2]) <= largest and few:
            return TrainingRows(*canonical, batch_size=len(canonical[2]))
    if batch_size is None:
        batch_size = MINIBATCH_ROWS
    return TrainingRows(x, target, weight, min(batch_size, n_rows))


def warn_of_small_weights(weight: NDArray[np.float64]) -> None:
    """Warn the caller of ``fit`` if weights (n,) are scaled so low that the posterior is that of far fewer rows.

    A typical row is one drawn with probability proportional to its weight; its weight is on average sum w^2 / sum w, and 1 or more
    for counts. Unlike the plain mean this does not fall where many rows are almost forgotten and some count fully.
    """
    total = weight.sum()
    if np.square(weight).sum() >= LEAST_WEIGHT * total:
        return
    n_rows = np.count_nonzero(weight)
    warnings.warn(
        f"sample_weight (times class_weight, if there is one) sums to {total:.3g} over {n_rows} rows, and weights are counts: the "
        f"posterior is as wide as if there were {total:.3g} rows. If only the ratios of the weights w are meant, pass "
        f"w * n / w.sum(), n={n_rows}.",
        UserWarning,
        stacklevel=4,
    )


def _canonical(
    x: NDArray[np.float64], target: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return sorted distinct rows and their summed weights; sums are exactly rounded, so that their order cannot matter."""
    x, target = x + 0.0, target + 0.0  # -0.0 becomes 0.0
    order = np.lexsort((*target.T[::-1], *x.T[::-1]))
    x, target, weight = x[order], target[order], weight[order]
    new = np.ones(len(x), dtype=bool)
    new[1:] = (x[1:] != x[:-1]).any(axis=1) | (target[1:] != target[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    if len(first) < len(x):
        weight = np.array([math.fsum(group) for group in np.split(weight, first[1:])])
    return x[first], target[first], weight


def column_scaling(x: Any, weight: NDArray[np.float64], *, enabled: bool = True) -> Scaling:
    """Return weighted means and standard deviations of the columns, in float64 and in chunks of rows.

    Each column is first divided by a power of two near its largest value, which is exact and keeps squares in range. Constant
    columns have scale 1. Dense and sparse inputs give the same bits.
    """
    n_columns = x.shape[1]
    if not enabled:
        return Scaling(np.zeros(n_columns), np.ones(n_columns))
    low, high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
    chunk = _chunk(n_columns)
    for start in range(0, x.shape[0], chunk):
        rows = dense_rows(x, slice(start, start + chunk))
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    _, exponent = np.frexp(np.maximum(np.abs(low), np.abs(high)))
    share = weight / math.fsum(weight)

    def average(center: NDArray[np.float64], power: int) -> NDArray[np.float64]:
        total = np.zeros(n_columns)
        for start in range(0, x.shape[0], chunk):
            rows = np.ldexp(dense_rows(x, slice(start, start + chunk)).astype(np.float64), -exponent)
            total += (share[start : start + chunk, None] * (rows - center) ** power).sum(axis=0)
        return total

    mean = average(np.zeros(n_columns), 1)
    mean = mean + average(mean, 1)  # the second pass removes the rounding of the first
    sd = np.sqrt(average(mean, 2))
    constant = (low == high) | (sd <= 4 * np.finfo(np.float64).eps * np.abs(mean))
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):  # by rounding, where the largest number stands
        mean, sd = (np.clip(np.ldexp(part, exponent), -largest, largest) for part in (np.where(low == high, 0.0, mean), sd))
    mean = np.where(low == high, low, mean)
    return Scaling(mean, np.where(constant, 1.0, np.maximum(sd, np.finfo(np.float64).smallest_subnormal)))


def _chunk(n_columns: int) -> int:
    """Return how many rows are made dense at once."""
    return max(1, min(CHUNK, CHUNK_ELEMENTS // n_columns))
