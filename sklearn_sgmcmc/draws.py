"""The posterior store: draws are thinned while the chain runs, never afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from sklearn_sgmcmc._typing import Snapshot, Theta


class DrawStore:
    """Kept draws (S, C, P), on the device of the run until they are taken to the host at its end; NaN until filled."""

    def __init__(self, n_draws: int, n_chains: int, n_params: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.values = torch.full((n_draws, n_chains, n_params), torch.nan, dtype=dtype, device=device)
        self.count = 0

    def add(self, theta: Theta) -> None:
        """Keep the current parameters of all chains."""
        self.values[self.count].copy_(theta)
        self.count += 1

    def state(self) -> Snapshot:
        """Return the draws kept so far."""
        return {"values": self.values[: self.count]}

    def restore(self, state: Snapshot) -> None:
        """Hold the draws kept when ``state`` was taken."""
        self.count = len(state["values"])
        self.values[: self.count] = state["values"]


@dataclass(frozen=True)
class Draws:
    """What ``sample`` returns.

    Attributes
    ----------
    values : tensor of shape (S, C, P)
        Kept draws, in the dtype and on the device of the run.
    potential_curve : tensor of shape (about 100, C), float64
        U along the run, first at the start.
    step_size : tensor of shape (C, 1), float64
        The step size at the end, before the schedule's multiplier: a sampler may have adapted it during burn-in.
    state : NamedTuple
        The sampler's last state (``friction``, ``skew``, ``accepted``, ...), each field with the leading chain axis.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.zeros(4, 2), step_size=0.1, n_steps=100, n_draws=10)
    >>> draws.values.shape, draws.pooled.shape
    (torch.Size([10, 4, 2]), torch.Size([40, 2]))
    """

    values: torch.Tensor
    potential_curve: torch.Tensor
    step_size: torch.Tensor
    state: Any

    @property
    def pooled(self) -> torch.Tensor:
        """All draws of all chains, (S C, P), in (draw, chain) order."""
        return self.values.flatten(0, 1)
