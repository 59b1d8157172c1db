"""The vocabulary of the package: read this page first.

Axes are always ``chain, draw, row, output`` with sizes ``C, S, n, K``; ``P`` counts the parameters of one chain.
All chains of a run are one tensor: ``theta[c]`` is chain ``c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import torch

Theta: TypeAlias = Annotated[torch.Tensor, "chain param"]
"""All parameters of all chains, shape (C, P)."""

PerChain: TypeAlias = Annotated[torch.Tensor, "chain"]
"""One number per chain, shape (C,)."""

Outputs: TypeAlias = Annotated[torch.Tensor, "chain output row"]
"""Network outputs, shape (C, K, n): rows last, so that reductions over outputs run over contiguous rows."""

Rows: TypeAlias = Annotated[torch.Tensor, "chain row column"]
"""Inputs or targets of a minibatch, shape (C, n, columns)."""

Coefficient: TypeAlias = float | Annotated[torch.Tensor, "chain 1"]
"""A hyperparameter: one float for all chains, or a float64 tensor of shape (C, 1) with one value per chain."""

Snapshot: TypeAlias = dict[str, torch.Tensor]
"""What a part of a run needs to go on from where it was, by name; numbers are tensors without dimensions."""


@dataclass(frozen=True, slots=True)
class Control:
    """What the schedule decides for one step.

    step_size : epsilon, the factor of the full-data gradient in one update (> 0).
    temperature : tau >= 0; the target is exp(-U / tau).
    adapt : whether the sampler may tune its own state (False from the first kept draw on).
    collect : whether the state after this step is kept as a draw.
    """

    step_size: Coefficient
    temperature: Coefficient
    adapt: bool
    collect: bool


class Noise(Protocol):
    """The only source of randomness in a sampler."""

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """Return fresh independent N(0, 1) numbers with the shape, dtype and device of ``like``."""


class Potential(Protocol):
    """U(theta) = -log posterior in nats, with a minibatch already bound."""

    @property
    def n_data(self) -> Coefficient:
        """Total sample weight N: 1 for a potential that is no sum over data."""

    def grad(self, theta: Theta) -> Theta:
        """Return the (stochastic) gradient of U, shape (C, P)."""

    def value(self, theta: Theta) -> PerChain:
        """Return U, summed in float64, shape (C,)."""

    def value_and_grad(self, theta: Theta) -> tuple[PerChain, Theta]:
        """Return both."""

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of U at ``theta`` times F vectors for every chain, shape (C, F, P)."""

    def fisher(self, theta: Theta) -> Theta:
        """Return the diagonal of the empirical Fisher information over all data, shape (C, P)."""

    def fresh(self) -> Potential:
        """Return the same potential on the next minibatch."""
