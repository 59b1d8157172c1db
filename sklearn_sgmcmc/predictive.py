"""Predictions streamed over chunks of rows and draws: memory does not grow with rows times draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sklearn_sgmcmc._typing import Outputs, Theta
from sklearn_sgmcmc.network import MLP, with_constant

ROWS = 1024
"""Rows per chunk."""
CHUNK_ELEMENTS = 2**21
"""Upper bound of draws x rows x widest layer held at once."""

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
        for start in range(0, len(self.draws), n_together):
            theta = self._kept(torch.from_numpy(self.draws[start : start + n_together])).to(rows.dtype)
            outputs, _ = self.network.forward(theta, rows.expand(len(theta), *rows.shape))
            yield outputs, theta[:, self.network.n_params :]

    def _kept(self, theta: Theta) -> Theta:
        """Return draws with the parameters below their threshold set to 0."""
        if self.threshold is None:
            return theta
        return torch.where(theta.abs() >= torch.from_numpy(self.threshold), theta, 0.0)

    @torch.no_grad()
    def moments(self, x: NDArray[np.floating], statistic: Statistic) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and variance (ddof 0) over draws of a statistic at rows ``x``: two (n, columns) float64 arrays."""
        count = 0
        mean = torch.zeros(())
        squares = torch.zeros(())
        for outputs, extra in self.chunks(x):
            value = statistic(outputs, extra).double()
            n_new, new_mean = len(value), value.mean(dim=0)
            shift = new_mean - mean
            total = count + n_new
            squares = squares + (value - new_mean).square().sum(dim=0) + shift.square() * (count * n_new / total)
            mean = mean + shift * (n_new / total)
            count = total
        return mean.T.numpy(), (squares / count).T.numpy()

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


def row_chunks(n_rows: int) -> Iterator[slice]:
    """Yield the slices of the fixed chunks of rows."""
    for start in range(0, n_rows, ROWS):
        yield slice(start, min(start + ROWS, n_rows))
