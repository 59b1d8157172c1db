"""Predictions streamed over chunks of rows and draws: memory does not grow with rows times draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Outputs, Theta
from sklearn_sgmcmc.batches import shared
from sklearn_sgmcmc.network import MLP, with_constant
from sklearn_sgmcmc.threads import isolated

ROWS = 1024
"""Most rows per chunk."""
CHUNK_ELEMENTS = 2**19
"""Upper bound of draws x rows x widest layer, or values of all draws, held at once: 4 MB in float64."""
STEPS = 200
"""Upper bound of the steps to a quantile; mixtures of neural networks take about five."""

Statistic = Callable[[Outputs, Theta], torch.Tensor]
"""Maps outputs (D, K, n) and likelihood parameters (D, E) of D draws to a quantity (D, columns, n)."""


@dataclass(frozen=True)
class Ensemble:
    """A network evaluated at M stored draws.

    draws : (M, P) float32, in (draw, chain) order.
    threshold : (P,) float32, absolute values below which a parameter counts as 0; None keeps all.
    """

    network: MLP
    draws: NDArray[np.float32]
    threshold: NDArray[np.float32] | None = None

    def chunks(self, x: NDArray[np.floating]) -> Iterator[tuple[Outputs, Theta]]:
        """Yield the outputs (D, K, n) and likelihood parameters (D, E) of successive groups of draws for rows ``x`` (n, d)."""
        rows = with_constant(torch.from_numpy(np.ascontiguousarray(x)))
        widest = max(self.network.widths)
        n_together = max(1, CHUNK_ELEMENTS // (widest * max(1, len(rows))))
        for draws in torch.split(shared(self.draws), n_together):
            theta = self._kept(draws).to(rows.dtype)
            outputs = self.network.outputs(theta, rows.expand(len(theta), *rows.shape))
            yield outputs, theta[:, self.network.n_params :]

    def _kept(self, theta: Theta) -> Theta:
        """Return draws with the parameters below their threshold set to 0."""
        if self.threshold is None:
            return theta
        return torch.where(theta.abs() >= shared(self.threshold), theta, 0.0)

    @torch.no_grad()
    def moments(self, x: NDArray[np.floating], statistic: Statistic) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and variance (ddof 0) over draws of a statistic at rows ``x``: two (n, columns) float64 arrays."""
        count = 0
        mean = squares = torch.zeros(())
        for outputs, extra in self.chunks(x):
            value = statistic(outputs, extra).double().contiguous()
            if count == 0:
                mean, squares = value.new_zeros(2, *value.shape[1:])
            add_draws(count, value, mean, squares)
            count += len(value)
        return mean.T.numpy(), squares.div_(count).T.numpy()

    @torch.no_grad()
    def log_mean_exp(self, x: NDArray[np.floating], statistic: Statistic) -> NDArray[np.float64]:
        """Return log(mean over draws of exp(statistic)), (n, columns) float64."""
        total: torch.Tensor | None = None
        for outputs, extra in self.chunks(x):
            part = statistic(outputs, extra).double().logsumexp(dim=0)
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None
        return (total - math.log(len(self.draws))).T.numpy()

    @torch.no_grad()
    def values(self, x: NDArray[np.floating], statistic: Statistic) -> NDArray[np.float64]:
        """Return a statistic at every draw, (M, n, columns) float64."""
        parts = [statistic(outputs, extra).double() for outputs, extra in self.chunks(x)]
        return torch.cat(parts).transpose(1, 2).numpy()

    def subset(self, chosen: NDArray[np.int64]) -> Ensemble:
        """Return the ensemble of some of the draws."""
        return replace(self, draws=self.draws[chosen])


def add_draws(count: int, values: torch.Tensor, mean: torch.Tensor, squares: torch.Tensor) -> None:
    """Add values (D, ...) to the means and the summed squared deviations (...) of ``count`` draws: all contiguous float64."""
    kernel = kernels.moments()
    if kernel is not None:
        kernel.add_draws(count, values, mean, squares)
        return
    n_new, new_mean = len(values), values.mean(dim=0)
    shift, total = new_mean - mean, count + n_new
    squares.add_((values - new_mean).square().sum(dim=0) + shift.square() * (count * n_new / total))
    mean.add_(shift * (n_new / total))


def row_chunks(n_rows: int, per_row: int = 1) -> Iterator[slice]:
    """Yield the slices of the fixed chunks of rows, with fewer rows where each holds many numbers ``per_row`` at once."""
    together = max(1, min(ROWS, CHUNK_ELEMENTS // per_row))
    for start in range(0, n_rows, together):
        yield slice(start, min(start + together, n_rows))


def over_rows(
    n_rows: int, predict: Callable[[slice], tuple[NDArray[Any], ...]], *, axis: int = 0, per_row: int = 1
) -> tuple[NDArray[Any], ...]:
    """Return the arrays that ``predict`` makes for each chunk of rows, laid together along an axis: nothing else is held."""
    whole: tuple[NDArray[Any], ...] = ()
    before = (slice(None),) * axis
    with isolated(), np.errstate(under="ignore"):
        for rows in row_chunks(n_rows, per_row):
            parts = predict(rows)
            whole = whole or tuple(np.empty((*p.shape[:axis], n_rows, *p.shape[axis + 1 :]), p.dtype) for p in parts)
            for array, part in zip(whole, parts, strict=True):
                array[(*before, rows)] = part
    return whole


def mixture_log_density(y: NDArray[np.float64], mean: NDArray[np.float64], sd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log (1 / M) sum_m prod_k N(y_k; mean_mk, sd_mk^2) of each row: y (n, K), mean and sd > 0 (M, n, K)."""
    with np.errstate(over="ignore", under="ignore"):  # a density of 0 is -inf
        log_density = (-0.5 * np.square((y - mean) / sd) - np.log(sd) - 0.5 * math.log(2 * math.pi)).sum(axis=2)
        return np.asarray(np.logaddexp.reduce(log_density, axis=0) - math.log(len(mean)))


def mixture_quantile(mean: NDArray[np.float64], sd: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return the quantile at a level in (0, 1) of the equal mixtures over axis 0 of N(mean, sd^2), sd > 0.

    It lies between the least and the largest quantile of the components. A Newton step that leaves this bracket, or is not half as
    long as the step before, gives way to halving the bracket.
    """
    if level > 0.5:  # the lower tail keeps its relative precision
        return -mixture_quantile(-mean, sd, 1.0 - level)
    center, precision = torch.from_numpy(mean), torch.from_numpy(sd).reciprocal()
    own = center + float(ndtri(level)) / precision
    low, high, x = own.amin(0), own.amax(0), own.mean(0)
    step, tolerance = high - low, 1e-8 / precision.amax(0)
    for _ in range(STEPS):
        going = step.abs() > tolerance + 4 * np.finfo(np.float64).eps * x.abs()
        if not going.any():
            break
        z = (x - center) * precision
        tails = torch.copysign(torch.erfc(z.abs() * math.sqrt(0.5)), z).sum(0)
        # M (F(x) - level), with a sign even where F is flat
        excess = (z >= 0).sum(0, dtype=z.dtype) - level * len(mean) - 0.5 * tails
        density = (z.square_().mul_(-0.5).exp_() * precision).sum(0) / math.sqrt(2 * math.pi)
        newton = -excess / density
        low, high = torch.where(excess < 0, x, low), torch.where(excess < 0, high, x)
        fast = (newton.abs() <= 0.5 * step.abs()) & (low <= x + newton) & (x + newton <= high)  # false if NaN
        step = torch.where(going, torch.where(fast, newton, 0.5 * (low + high) - x), step)
        x = torch.where(going, x + step, x)
    return x.numpy()
