"""Langevin dynamics with a skew-symmetric drift: it circulates, mixes faster, and leaves the target alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, not_negative, scale
from sklearn_sgmcmc.samplers.langevin import langevin_move


class SkewState(NamedTuple):
    """theta (C, P) and the subdiagonal (C, P - 1) of a tridiagonal skew matrix S: S[p + 1, p] = -S[p, p + 1]."""

    theta: Theta
    skew: torch.Tensor


@dataclass(eq=False)
class NonReversibleSGLD(Sampler):
    """SGLD with a fixed skew-symmetric matrix S in the drift.

    theta <- theta - eps (I + S) g + sqrt(2 eps tau) N(0, I),   S^T = -S.

    On U = theta^T L theta / 2, with B = (I + S) L, the covariance solves
    B Sigma + Sigma B^T - eps B Sigma B^T = 2 tau I + eps s2 (I + S)(I + S)^T:
    the target as eps -> 0, with a bias that grows like eps |S|^2. S is tridiagonal with independent N(0, skew_scale^2)
    entries, drawn once per chain, unless a dense one is given.

    Source: Hwang, Hwang-Ma & Sheu 1993; Krishnamurthy & Yin 2020, equation 5.

    Parameters
    ----------
    skew_scale : float >= 0, default 1
        Standard deviation of the entries of S, dimensionless. At 0 the chain is SGLD.
    skew : tensor of shape (P, P) or None, default None
        A dense skew matrix in place of the random one.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import NonReversibleSGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=NonReversibleSGLD(), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 2 / (2 - 0.05 * 2)) < 0.15
    True
    """

    skew_scale: Coefficient = 1.0
    skew: torch.Tensor | None = None

    law: ClassVar[Law] = "small step"
    default_learning_rate: ClassVar[float] = 0.05
    source: ClassVar[str] = "Krishnamurthy & Yin 2020, eq. 5"
    use: ClassVar[str] = "Posteriors that are long and narrow: it circulates, at the price of sgld's single gradient."

    @property
    def stability_limit(self) -> Coefficient:
        """2 / (1 + |S|^2), with the norm of the dense S, or |S v|^2 = 2 skew_scale^2 on average over the random ones."""
        if self.skew is not None:
            return 2.0 / (1.0 + float(torch.linalg.matrix_norm(self.skew.double(), 2)) ** 2)
        return 2.0 / (1.0 + 2.0 * self.skew_scale * self.skew_scale)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("skew_scale", "a number >= 0", not_negative)
        self.check_field("skew", "a square torch tensor S of floats with S.T == -S, or None", lambda S: S is None or _is_skew(S))

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> SkewState:
        """Start at ``theta`` with a fresh S."""
        P = theta.shape[1]
        self.check_field(
            "skew", f"a ({P}, {P}) matrix, one row per parameter, or None", lambda S: True if S is None else len(S) == P
        )
        return SkewState(theta, scale(self.skew_scale, noise(theta))[:, 1:])

    def step(self, state: SkewState, potential: Potential, noise: Noise, control: Control) -> SkewState:
        """Advance by one step."""
        g = potential.grad(state.theta)
        turned = apply_tridiagonal(state.skew, g) if self.skew is None else (self.skew.to(g) * g[:, None, :]).sum(dim=2)
        return SkewState(langevin_move(state.theta, g + turned, noise, control), state.skew)


def _is_skew(S: object) -> bool:
    if not isinstance(S, torch.Tensor) or not S.is_floating_point() or S.ndim != 2:
        return False
    return torch.equal(S, -S.T)


def apply_tridiagonal(skew: torch.Tensor, vector: Theta) -> Theta:
    """Return S v, (C, P), for the tridiagonal skew S with subdiagonal ``skew`` (C, P - 1)."""
    return torch.nn.functional.pad(skew * vector[:, :-1], (1, 0)) - torch.nn.functional.pad(skew * vector[:, 1:], (0, 1))
