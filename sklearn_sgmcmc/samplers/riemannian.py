"""Langevin dynamics on a Riemannian manifold: the metric says how far a unit of each parameter is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, average, in_unit_interval, plus, positive, scale, sqrt
from sklearn_sgmcmc.samplers.preconditioned import preconditioned_move

InverseMetric = Callable[[Theta], torch.Tensor]
"""theta (C, P) -> K = G^-1: its diagonal (C, P), or the whole symmetric positive definite matrix (C, P, P)."""


class RiemannianState(NamedTuple):
    """theta and the moving average of the Fisher information per datum, both (C, P); 0 under a metric of the user's."""

    theta: Theta
    fisher: Theta


@dataclass(eq=False)
class SGRLD(Sampler):
    """Stochastic gradient Riemannian Langevin dynamics.

    theta <- theta - eps K g + eps tau Gamma + sqrt(2 eps tau) K^(1/2) N(0, I),   K = G^-1,   Gamma_i = sum_j d K_ij / d theta_j.

    A metric of the user's may depend on theta, and the law is exp(-U / tau) as eps -> 0. Without one, G = F / N + l
    with F a moving average of the diagonal empirical Fisher information of all data; there
    Gamma is left out, which is right once F is frozen and biased while it adapts. On U = lambda theta^2 / 2 with constant K the
    variance is (2 tau + eps s2 K) / (lambda (2 - eps K lambda)).

    Source: Patterson & Teh 2013, equation 10, with their step 2 eps; Ma, Chen & Fox 2015, equation 9 (D = K, Q = 0).

    Parameters
    ----------
    inverse_metric : callable or None, default None
        theta (C, P) -> K, either its diagonal (C, P) or the matrix (C, P, P); each chain's own row decides. None is the inverse of
        the Fisher information, for estimators.
    divergence : callable or None, default None
        theta (C, P) -> Gamma (C, P) of the user's metric. None takes it by automatic differentiation: P derivatives a step, P^2 for
        a matrix.
    decay : float in [0, 1), default 0.99
        Memory of the average of F.
    regularizer : float > 0, default 0.1
        l, per datum: it bounds K by 1 / l, as the gradients of rows that are fitted well tell nothing of their curvature.
    adapt : "burn_in" or "always"
        "burn_in" freezes F before the first kept draw; "always" adapts for ever, with a bias.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import SGRLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2),
    ...     sampler=SGRLD(inverse_metric=lambda x: 1 + x.square()), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    inverse_metric: InverseMetric | None = None
    divergence: Callable[[Theta], Theta] | None = None
    decay: Coefficient = 0.99
    regularizer: Coefficient = 0.1
    adapt: Literal["burn_in", "always"] = "burn_in"

    affine = "frozen"
    needs: ClassVar[frozenset[str]] = frozenset({"fisher"})
    stability_limit = None  # the step is in units of K, of which the curvature of U knows nothing
    default_learning_rate: ClassVar[float] = 0.02
    source: ClassVar[str] = "Patterson & Teh 2013, eq. 10"
    use: ClassVar[str] = "A metric that you know, in sample(); in the estimators, as psgld with the Fisher information."

    @property
    def law(self) -> Law:  # type: ignore[override]  # a class fact of most samplers
        """With Gamma, or with F frozen, the law is the target as eps -> 0."""
        return "biased" if self.adapt == "always" and self.inverse_metric is None else "small step"

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("inverse_metric", "a function from theta (C, P) to K, or None", lambda K: K is None or callable(K))
        self.check_field(
            "divergence", "a function from theta (C, P) to Gamma, or None", lambda Gamma: Gamma is None or callable(Gamma)
        )
        self.check_field("decay", "a number in [0, 1)", in_unit_interval)
        self.check_field("regularizer", "a number > 0", positive)
        self.check_field("adapt", "'burn_in' or 'always'", ("burn_in", "always").__contains__)

    def gradient_noise_gain(self, state: RiemannianState) -> Theta:
        """K, or its diagonal."""
        if self.inverse_metric is None:
            return self._inverse_fisher(state.fisher)
        K = self.inverse_metric(state.theta)
        return K if K.ndim == 2 else K.diagonal(dim1=1, dim2=2)

    def drift_gain(self, state: RiemannianState) -> Theta:
        """K, or its diagonal."""
        return self.gradient_noise_gain(state)

    def _inverse_fisher(self, F: Theta) -> Theta:
        return plus(self.regularizer, F).reciprocal()

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> RiemannianState:
        """Start at ``theta`` with the Fisher information there."""
        if self.inverse_metric is None:
            return RiemannianState(theta, self._per_datum(theta, potential))
        _check_metric(self.inverse_metric, self.divergence, theta)
        return RiemannianState(theta, torch.zeros_like(theta))

    def step(self, state: RiemannianState, potential: Potential, noise: Noise, control: Control) -> RiemannianState:
        """Advance by one step."""
        theta, F = state
        g = potential.grad(theta)
        if self.inverse_metric is not None:
            return RiemannianState(self._move(theta, g, self.inverse_metric, noise, control), F)
        if control.adapt or self.adapt == "always":
            F = average(self.decay, F, self._per_datum(theta, potential))
        K = self._inverse_fisher(F)
        return RiemannianState(preconditioned_move(theta, g, K, noise, control), F)

    @staticmethod
    def _per_datum(theta: Theta, potential: Potential) -> Theta:
        """Return the diagonal of the empirical Fisher information per datum."""
        return scale(1.0 / potential.n_data, potential.fisher(theta))

    def _move(self, theta: Theta, g: Theta, inverse_metric: InverseMetric, noise: Noise, control: Control) -> Theta:
        """Return theta after a step under a metric of the user's, Gamma included."""
        eps, tau = control.step_size, control.temperature
        K = inverse_metric(theta).to(theta.dtype)
        Gamma = divergence(inverse_metric, theta) if self.divergence is None else self.divergence(theta)
        if K.ndim == 2:
            moved = preconditioned_move(theta, g, K, noise, control)
        else:
            root, failed = torch.linalg.cholesky_ex(K)
            root = torch.where(failed[:, None, None] > 0, torch.nan, root)  # that chain alone stops being finite
            injected = (root @ noise(theta)[:, :, None])[..., 0]
            moved = add_scaled(add_scaled(theta, -eps, (K @ g[:, :, None])[..., 0]), sqrt(2.0 * eps * tau), injected)
        return add_scaled(moved, eps * tau, Gamma)


def _check_metric(inverse_metric: InverseMetric, given: Callable[[Theta], Theta] | None, theta: Theta) -> None:
    """Raise ValueError if a metric of the user's, or its divergence, is not what it must be at ``theta``."""
    C, P = theta.shape
    K = inverse_metric(theta)
    if not isinstance(K, torch.Tensor) or K.shape not in ((C, P), (C, P, P)):
        found = f"the shape {tuple(K.shape)}" if isinstance(K, torch.Tensor) else repr(K)
        raise ValueError(
            f"SGRLD.inverse_metric returned {found} for theta of shape {(C, P)}: "
            f"it must return K as a tensor of shape {(C, P)}, its diagonal, or {(C, P, P)}."
        )
    matrix = torch.diag_embed(K) if K.ndim == 2 else K
    matrix = matrix.detach().double()
    symmetric = torch.allclose(matrix, matrix.mT, rtol=1e-5, atol=1e-8)
    if not (torch.isfinite(matrix).all() and symmetric and not torch.linalg.cholesky_ex(matrix).info.any()):
        raise ValueError(
            "SGRLD.inverse_metric returned a K at theta0 that is not finite, symmetric and positive definite for every chain: "
            "noise with that covariance does not exist. Return K = G^-1, the diagonal > 0."
        )
    if given is not None:
        Gamma = given(theta)
        if not isinstance(Gamma, torch.Tensor) or Gamma.shape != (C, P):
            found = f"the shape {tuple(Gamma.shape)}" if isinstance(Gamma, torch.Tensor) else repr(Gamma)
            raise ValueError(f"SGRLD.divergence returned {found}: it must return Gamma as a tensor of shape {(C, P)}.")
    elif _is_opaque(inverse_metric, theta):
        raise ValueError(
            "SGRLD.inverse_metric depends on theta in a way that automatic differentiation does not see (detach, numpy): "
            "Gamma would be lost. Write it in torch, or give divergence=..."
        )


def _is_opaque(inverse_metric: InverseMetric, theta: Theta) -> bool:
    """Return whether K changes with theta and has no gradient."""
    with torch.enable_grad():
        if inverse_metric(theta.detach().requires_grad_()).requires_grad:
            return False
    elsewhere = theta + 0.01 * (1.0 + theta.abs())
    return not torch.equal(inverse_metric(elsewhere), inverse_metric(theta))


def divergence(inverse_metric: InverseMetric, theta: Theta) -> Theta:
    """Return Gamma_i = sum_j d K_ij / d theta_j, (C, P), by one derivative of K per parameter."""
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        K = inverse_metric(leaf)
        if not K.requires_grad:  # K does not depend on theta
            return torch.zeros_like(theta)
        total = torch.zeros_like(theta)
        for i in range(theta.shape[1]):
            for j in (i,) if K.ndim == 2 else range(theta.shape[1]):
                entry = K[:, i] if K.ndim == 2 else K[:, i, j]
                by_theta = torch.autograd.grad(entry.sum(), leaf, retain_graph=True, allow_unused=True)[0]
                if by_theta is not None:
                    total[:, i] += by_theta[:, j]
        return total.detach()
