"""The posterior store: draws are thinned while the chain runs, never afterwards."""

from __future__ import annotations

import torch

from sklearn_sgmcmc._typing import Theta


class Draws:
    """Kept draws (S, C, P), on the device of the run until they are taken to the host at its end; NaN until filled."""

    def __init__(self, n_draws: int, n_chains: int, n_params: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.values = torch.full((n_draws, n_chains, n_params), torch.nan, dtype=dtype, device=device)
        self.count = 0

    def add(self, theta: Theta) -> None:
        """Keep the current parameters of all chains."""
        self.values[self.count].copy_(theta)
        self.count += 1
