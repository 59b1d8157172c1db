"""Langevin dynamics with a diagonal preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, average, in_unit_interval, plus, positive, scale, sqrt


class PreconditionedState(NamedTuple):
    """theta and the moving average of the squared per-datum gradient, both (C, P)."""

    theta: Theta
    square: Theta


@dataclass(eq=False)
class PSGLD(Sampler):
    """Preconditioned SGLD: RMSprop's scaling inside Langevin dynamics.

    V <- d V + (1 - d) (g / N)^2;   G = 1 / (l + sqrt V);   theta <- theta - eps G g + sqrt(2 eps tau G) N(0, I).

    With V frozen the law on U = lambda theta^2 / 2 is exact: variance (2 tau + eps s2 G) / (lambda (2 - eps G lambda)). While V
    adapts, the term Gamma of the complete recipe is missing and the law is biased. V starts at the first squared gradient.

    Source: Li, Chen, Carlson & Carin 2016, Algorithm 1, without Gamma.

    Parameters
    ----------
    decay : float in [0, 1), default 0.99
        d, memory of the average.
    regularizer : float > 0, default 1e-3
        l, keeps G finite; units of g / N. With the 1e-5 of the paper parameters without gradient are shaken apart.
    adapt : "burn_in" or "always"
        "burn_in" freezes V before the first kept draw; "always" adapts for ever, as published.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import PSGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(lambda x: 0.5 * x.square().sum(1), torch.ones(64, 2), sampler=PSGLD(), step_size=0.05, n_steps=500)
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    decay: Coefficient = 0.99
    regularizer: Coefficient = 1e-3
    adapt: Literal["burn_in", "always"] = "burn_in"

    affine = "frozen"
    stability_limit = None  # the step is in units of G, of which the curvature of U knows nothing
    default_learning_rate: ClassVar[float] = 0.005
    source: ClassVar[str] = "Li, Chen, Carlson & Carin 2016, Algorithm 1"
    use: ClassVar[str] = "Minibatches, and inputs or layers whose gradients differ in size."

    @property
    def law(self) -> Law:  # type: ignore[override]  # a class fact of most samplers
        """Frozen, the law is the target as eps -> 0."""
        return "small step" if self.adapt == "burn_in" else "biased"

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("decay", "a number in [0, 1)", in_unit_interval)
        self.check_field("regularizer", "a number > 0", positive)
        self.check_field("adapt", "'burn_in' or 'always'", ("burn_in", "always").__contains__)

    def start(self, g: Theta, n_data: Coefficient) -> Theta:
        """Return V from the first gradient."""
        return scale(1.0 / n_data, g).square()

    def follow(self, V: Theta, g: Theta, n_data: Coefficient, *, adapt: bool) -> Theta:
        """Return V once the gradient ``g`` is in it, unless it is frozen."""
        if not adapt and self.adapt == "burn_in":
            return V
        return average(self.decay, V, scale(1.0 / n_data, g).square())

    def metric(self, V: Theta) -> Theta:
        """Return G = 1 / (l + sqrt V)."""
        return plus(self.regularizer, V.sqrt()).reciprocal()

    def gradient_noise_gain(self, state: PreconditionedState) -> Theta:
        """G."""
        return self.metric(state.square)

    def drift_gain(self, state: PreconditionedState) -> Theta:
        """G."""
        return self.metric(state.square)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> PreconditionedState:
        """Start at ``theta`` with V the squared gradient there."""
        return PreconditionedState(theta, self.start(potential.grad(theta), potential.n_data))

    def step(self, state: PreconditionedState, potential: Potential, noise: Noise, control: Control) -> PreconditionedState:
        """Advance by one step; V is updated before use."""
        g = potential.grad(state.theta)
        V = self.follow(state.square, g, potential.n_data, adapt=control.adapt)
        return PreconditionedState(preconditioned_move(state.theta, g, self.metric(V), noise, control), V)


def preconditioned_move(theta: Theta, drift: Theta, G: Theta, noise: Noise, control: Control) -> Theta:
    """Return theta - eps G drift + sqrt(2 eps tau G) N(0, I), G diagonal (C, P)."""
    eps, tau = control.step_size, control.temperature
    return add_scaled(add_scaled(theta, -eps, G * drift), sqrt(2.0 * eps * tau), G.sqrt() * noise(theta))
