"""Santa: a thermostat with a preconditioner that is cooled down from sampling to optimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from sklearn_sgmcmc._checks import check_flag, rounded_down
from sklearn_sgmcmc._typing import Coefficient, Control, Noise, PerChain, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, average, in_unit_interval, plus, positive, ratio, scale, sqrt
from sklearn_sgmcmc.samplers.thermostat import RUNAWAY_ADVICE, is_runaway


class SantaState(NamedTuple):
    """theta, the momentum r = u / sqrt(eps), the friction alpha, the average V of (g / N)^2 and the last G, all (C, P)."""

    theta: Theta
    momentum: Theta
    friction: Theta
    square: Theta
    metric: Theta


@dataclass(eq=False)
class Santa(Sampler):
    """Stochastic annealing thermostats with adaptive momentum.

    V <- s V + (1 - s) (g / N)^2;   G = 1 / sqrt(l + sqrt V).   While tau > 0 (exploration), in the Euler scheme,
    alpha <- alpha + u^2 - eps tau;   u <- (1 - alpha) u - eps G g + sqrt(2 a eps tau) N(0, I);   theta <- theta + G u.
    At tau = 0 (refinement) alpha stands still and there is no noise. The state holds r = u / sqrt(eps).

    The symmetric splitting: theta moves by G u / 2; alpha by half of its change; u by the factor exp(-alpha / 2); the kick; then
    the same in reverse order. Its gradient is taken where the step began.

    With ``schedule="annealed"`` the temperature falls as 1 / (A t^gamma) and then is 0: an optimiser that has explored. At a
    constant temperature it is the Bayesian mode. The law is biased: with G and alpha held it is SGHMC's at the step
    eps G^2, and on average alpha ends at the smaller root of alpha (4 - 2 alpha - h) = 4 a + 2 eps G^2 s2 / tau with
    h = eps G^2 lambda, if that exists. V starts at the mean over parameters of the first squared gradient (the paper has 0: long
    first steps).

    The published noise has a = sqrt(eps) G_old, the only power of eps that agrees with the continuous equation. It fades as the
    data grow (eps = learning_rate / N), and alpha, which follows it by eps tau a step at most, with it: the chain then keeps the
    heat of its burn-in. A fixed a, as in SGNHT, does not.

    Source: Chen, Carlson, Gan, Li & Carin 2016, Algorithms 1 (Euler) and 2 (symmetric splitting), V per datum.

    Parameters
    ----------
    scheme : "euler" or "sss", default "euler"
        Algorithm 1 or 2.
    decay : float in [0, 1), default 0.999
        s, memory of V.
    regularizer : float > 0, default 0.01
        l, keeps G finite; units of g / N. With the 1e-8 of the paper parameters without gradient are shaken apart.
    initial_friction : float > 0 or None, default None
        C in alpha_0 = sqrt(eps) C; the paper's optimiser has 100. None starts where the noise alone would take alpha, at a: a chain
        that starts higher stays cold, as alpha falls by eps tau a step at most.
    noise_level : float in (0, 0.5) or None, default 0.2
        a, the injected noise and the initial friction per step, dimensionless: sqrt(eps) times the metric of the noise in the
        continuous equation. None is sqrt(eps) G_old, as published.
    thermostat_rate : float >= 0 or None, default None
        k in alpha <- alpha + k (r^2 / tau - 1). None is eps tau, as published; 0 freezes the friction.
    metric_correction : bool, default False
        Adds eps tau (1 - G_old / G) / u to u, as printed: it explodes near u = 0.
    adapt : "burn_in" or "always"
        "burn_in" freezes V before the first kept draw; "always" adapts for ever, as published.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import Santa
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.ones(4, 2), sampler=Santa(), schedule="annealed", step_size=0.001, n_steps=1000
    ... )
    >>> draws.values.shape, bool(draws.values[-1].abs().max() < 0.1)
    (torch.Size([500, 4, 2]), True)
    """

    scheme: Literal["euler", "sss"] = "euler"
    decay: Coefficient = 0.999
    regularizer: Coefficient = 0.01
    initial_friction: Coefficient | None = None
    noise_level: Coefficient | None = 0.2
    thermostat_rate: Coefficient | None = None
    metric_correction: bool = False
    adapt: Literal["burn_in", "always"] = "burn_in"

    law: ClassVar[Law] = "biased"
    affine = "frozen"
    stability_limit = None  # the step is in units of G^2, of which the curvature of U knows nothing
    default_learning_rate: ClassVar[float] = 0.002
    source: ClassVar[str] = "Chen, Carlson, Gan, Li & Carin 2016, Algorithms 1 and 2"
    use: ClassVar[str] = "With schedule='annealed', an optimiser that has explored; else a preconditioned thermostat."
    runaway_advice: ClassVar[str] = RUNAWAY_ADVICE

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("scheme", "'euler' or 'sss'", ("euler", "sss").__contains__)
        self.check_field("decay", "a number in [0, 1)", in_unit_interval)
        self.check_field("regularizer", "a number > 0", positive)
        self.check_field("initial_friction", "a number > 0, or None", lambda C: True if C is None else C > 0)
        self.check_field("noise_level", "a number in (0, 0.5), or None", lambda a: True if a is None else (a > 0) & (a < 0.5))
        self.check_field("thermostat_rate", "a number >= 0, or None", lambda k: True if k is None else k >= 0)
        self.check_field("adapt", "'burn_in' or 'always'", ("burn_in", "always").__contains__)
        check_flag("Santa.metric_correction", self.metric_correction)

    def check_run(self, largest_step: Coefficient, least_temperature: Coefficient) -> None:
        """Raise ValueError if the initial friction would be 1 or more: then u turns round at every step."""
        if self.initial_friction is None:
            return
        C, step = (torch.as_tensor(value, dtype=torch.float64) for value in (self.initial_friction, largest_step))
        if bool((C * step.sqrt() >= 1).any()):
            raise ValueError(
                f"Santa.initial_friction={self.initial_friction!r} times sqrt(step_size) must be below 1, and the largest "
                f"step_size of the run is {float(step.max()):.3g}: use a step_size below {rounded_down(float(C.max()) ** -2)} (a "
                "learning_rate of N times that), or initial_friction=None."
            )

    def effective_temperature(self, temperature: float) -> float | None:
        """None: the law is not that of any temperature."""
        return None

    def runaway(self, state: SantaState) -> PerChain:
        """Return where the mean friction exceeds 1."""
        return is_runaway(state.friction)

    def gradient_noise_gain(self, state: SantaState) -> None:
        """None: the friction absorbs it."""

    def drift_gain(self, state: SantaState) -> Theta:
        """G^2 / alpha, with the friction of the state."""
        return state.metric.square() / state.friction

    def momentum_variance(self, temperature: float) -> float:
        """The temperature."""
        return temperature

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> SantaState:
        """Start at ``theta`` with r ~ N(0, I), V_0 the mean over parameters of the squared gradient there, and G_0 = G_1."""
        V = scale(1.0 / potential.n_data, potential.grad(theta)).square().mean(dim=1, keepdim=True).expand_as(theta)
        G = self._metric(V)
        one = torch.ones_like(theta)
        if self.initial_friction is not None:
            friction = scale(sqrt(control.step_size) * self.initial_friction, one)
        else:
            friction = scale(sqrt(control.step_size), G) if self.noise_level is None else scale(self.noise_level, one)
        return SantaState(theta, noise(theta), friction, V, G)

    def step(self, state: SantaState, potential: Potential, noise: Noise, control: Control) -> SantaState:
        """Advance by one step."""
        g = potential.grad(state.theta)
        V = state.square
        if control.adapt or self.adapt == "always":
            V = average(self.decay, V, scale(1.0 / potential.n_data, g).square())
        G = self._metric(V)
        kick = self._kick(state, g, G, noise, control)
        advance = self._euler if self.scheme == "euler" else self._splitting
        return SantaState(*advance(state, kick, G, control), V, G)

    def _euler(self, state: SantaState, kick: Theta, G: Theta, control: Control) -> tuple[Theta, Theta, Theta]:
        """Return theta, r and alpha by Algorithm 1."""
        r = state.momentum
        alpha = state.friction + self._heating(r, control, share=1.0)
        r = r - alpha * r + kick
        return add_scaled(state.theta, sqrt(control.step_size), G * r), r, alpha

    def _splitting(self, state: SantaState, kick: Theta, G: Theta, control: Control) -> tuple[Theta, Theta, Theta]:
        """Return theta, r and alpha by Algorithm 2."""
        half = scale(0.5 * sqrt(control.step_size), G)
        r = state.momentum
        theta = state.theta + half * r
        alpha = state.friction + self._heating(r, control, share=0.5)
        shrink = torch.exp(-0.5 * alpha)
        r = shrink * (shrink * r + kick)
        alpha = alpha + self._heating(r, control, share=0.5)
        return theta + half * r, r, alpha

    def _kick(self, state: SantaState, g: Theta, G: Theta, noise: Noise, control: Control) -> Theta:
        """Return -sqrt(eps) G g, the noise, and the correction for a changing metric if asked for."""
        eps, tau = control.step_size, control.temperature
        if self.noise_level is None:
            injected = scale(sqrt(2.0 * sqrt(eps) * tau), state.metric.sqrt() * noise(g))
        else:
            injected = scale(sqrt(2.0 * self.noise_level * tau), noise(g))
        kick = add_scaled(injected, -sqrt(eps), G * g)
        if not self.metric_correction:
            return kick
        return add_scaled(kick, tau, (1.0 - state.metric / G) / state.momentum)

    def _heating(self, r: Theta, control: Control, *, share: float) -> Theta:
        """Return a share of k (r^2 / tau - 1), and 0 where tau = 0: in refinement the friction stands still."""
        tau = control.temperature
        rate = ratio(control.step_size * tau if self.thermostat_rate is None else self.thermostat_rate, tau)
        return scale(share * rate, r.square() - scale(tau, torch.ones_like(r)))

    def _metric(self, V: Theta) -> Theta:
        """Return G = 1 / sqrt(l + sqrt V)."""
        return plus(self.regularizer, V.sqrt()).rsqrt()
