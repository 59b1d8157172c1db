"""The drift is the gradient plus the direction of an adaptive optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import (
    Law,
    Sampler,
    add_scaled,
    average,
    in_unit_interval,
    not_negative,
    plus,
    positive,
    scale,
)
from sklearn_sgmcmc.samplers.langevin import langevin_move
from sklearn_sgmcmc.samplers.preconditioned import PSGLD, preconditioned_move

MOST_FULL = 256
"""Most parameters for which a (P, P) matrix per chain and its eigenvectors are worth a step."""


class AdaptiveDriftState(NamedTuple):
    """theta, the adaptive drift A that the past has left, the averages it is made of, and the preconditioner's, all (C, P).

    ``second`` is (C, P, P) for the full-matrix form; ``square`` stays 0 without a preconditioner.
    """

    theta: Theta
    drift: Theta
    first: Theta
    second: torch.Tensor
    square: Theta


class AdaptiveDrift(Sampler):
    """Base of SGLD with a normalised drift: theta <- theta - eps (g + a A) + sqrt(2 eps tau) N(0, I), A made of past gradients.

    A is of order one where the gradient is of order N, so that the bias factor counts in units of N: a = bias_factor N. Then
    learning_rate * bias_factor is the size of an Adam step. A drift that differs between parameters is no gradient field: no
    temperature is right, and the law is biased. With a preconditioner G,
    theta <- theta - eps G (g + a A) + sqrt(2 eps tau G) N(0, I).
    """

    bias_factor: Coefficient
    preconditioner: PSGLD | None
    law: ClassVar[Law] = "biased"
    affine = "no"
    default_learning_rate: ClassVar[float] = 0.1

    @property
    def stability_limit(self) -> Coefficient | None:
        """2, SGLD's: the drift adds little at small bias. None with a preconditioner, in whose units the step then is."""
        return 2.0 if self.preconditioner is None else None

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("bias_factor", "a number >= 0", not_negative)
        self.check_field("preconditioner", "a PSGLD object, or None", lambda G: G is None or isinstance(G, PSGLD))
        if self.preconditioner is not None:
            self.preconditioner.check()

    def effective_temperature(self, temperature: float) -> float | None:
        """None: the law is not that of any temperature. Without bias it is SGLD's."""
        return temperature if not isinstance(self.bias_factor, torch.Tensor) and self.bias_factor == 0 else None

    def gradient_noise_gain(self, state: AdaptiveDriftState) -> Coefficient | Theta:
        """G, of the gradient's own part."""
        return 1.0 if self.preconditioner is None else self.preconditioner.metric(state.square)

    def drift_gain(self, state: AdaptiveDriftState) -> Coefficient | Theta:
        """G, of the gradient's own part."""
        return self.gradient_noise_gain(state)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> AdaptiveDriftState:
        """Start at ``theta`` without drift."""
        zero = torch.zeros_like(theta)
        square = zero if self.preconditioner is None else self.preconditioner.start(potential.grad(theta), potential.n_data)
        return AdaptiveDriftState(theta, zero, zero, zero, square)

    def step(self, state: AdaptiveDriftState, potential: Potential, noise: Noise, control: Control) -> AdaptiveDriftState:
        """Advance by one step; A holds past gradients only."""
        g = potential.grad(state.theta)
        pull = add_scaled(g, self.bias_factor * potential.n_data, state.drift)
        square = state.square
        if self.preconditioner is None:
            moved = langevin_move(state.theta, pull, noise, control)
        else:
            square = self.preconditioner.follow(square, g, potential.n_data, adapt=control.adapt)
            moved = preconditioned_move(state.theta, pull, self.preconditioner.metric(square), noise, control)
        return AdaptiveDriftState(moved, *self.remember(state, g), square)

    def remember(self, state: AdaptiveDriftState, g: Theta) -> tuple[Theta, Theta, torch.Tensor]:
        """Return A and the two averages once the gradient ``g`` has become past."""
        raise NotImplementedError


@dataclass(eq=False)
class ASGLD(AdaptiveDrift):
    """Adam SGLD: the drift is Adam's direction, without its corrections for the start.

    theta <- theta - eps (g + a A) + sqrt(2 eps tau) N(0, I);   m <- b1 m + (1 - b1) g;   V <- b2 V + (1 - b2) g^2;
    A = m / sqrt(V + l), from past gradients;   a = bias_factor N.

    The full-matrix form has V <- b2 V + (1 - b2) g g^T and A = (V + l I)^(-1/2) m: it costs P^3 a step.

    Source: Kim, Song & Liang 2020, Algorithm 2; the full matrix: their equation 2.

    Parameters
    ----------
    bias_factor : float >= 0, default 0.01
        a / N, dimensionless. At 0 the chain is SGLD, bit for bit.
    beta1, beta2 : floats in [0, 1) with beta1^2 < beta2, default 0.9 and 0.999
        Memories of the two averages.
    regularizer : float > 0, default 1e-8
        l, keeps A finite; units of g^2.
    matrix : "diagonal" or "full", default "diagonal"
        The form of V; "full" is for at most 256 parameters.
    preconditioner : PSGLD or None, default None
        Scales drift and noise; None is the identity. At bias 0 the chain is then the preconditioner's own.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import ASGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=ASGLD(bias_factor=0.1), step_size=0.05, n_steps=500
    ... )
    >>> 0.8 < float(draws.values.var()) < 1  # colder than the target
    True
    """

    bias_factor: Coefficient = 0.01
    beta1: Coefficient = 0.9
    beta2: Coefficient = 0.999
    regularizer: Coefficient = 1e-8
    matrix: Literal["diagonal", "full"] = "diagonal"
    preconditioner: PSGLD | None = None

    source: ClassVar[str] = "Kim, Song & Liang 2020, Algorithm 2"
    use: ClassVar[str] = "To reproduce its paper, or to explore along Adam's direction: it samples no law that can be written down."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("beta2", "a number in [0, 1)", in_unit_interval)
        self.check_field("beta1", "a number >= 0 with beta1^2 < beta2", lambda b1: (b1 >= 0) & (b1 * b1 < self.beta2))
        self.check_field("regularizer", "a number > 0", positive)
        self.check_field("matrix", "'diagonal' or 'full'", ("diagonal", "full").__contains__)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> AdaptiveDriftState:
        """Start at ``theta`` without drift."""
        state = super().init(theta, potential, noise, control)
        if self.matrix == "diagonal":
            return state
        C, P = theta.shape
        self.check_field("matrix", f"'diagonal' for {P} parameters: 'full' is for at most {MOST_FULL}", lambda _: P <= MOST_FULL)
        return state._replace(second=theta.new_zeros(C, P, P))

    def remember(self, state: AdaptiveDriftState, g: Theta) -> tuple[Theta, Theta, torch.Tensor]:
        """Return m / sqrt(V + l), m and V."""
        m = average(self.beta1, state.first, g)
        if self.matrix == "full":
            return self._remember_matrix(m, state.second, g)
        V = average(self.beta2, state.second, g * g)
        return m / plus(self.regularizer, V).sqrt(), m, V

    def _remember_matrix(self, m: Theta, V: torch.Tensor, g: Theta) -> tuple[Theta, Theta, torch.Tensor]:
        """Return (V + l I)^(-1/2) m, m and V (C, P, P), by the eigenvectors of V."""
        memory = torch.as_tensor(self.beta2, dtype=torch.float64, device=g.device).reshape(-1, 1, 1).to(g.dtype)
        V = memory * V + (1.0 - memory) * g[:, :, None] * g[:, None, :]
        values, Q = torch.linalg.eigh(V)
        inverse_root = plus(self.regularizer, values.clamp_min(0.0)).rsqrt()
        A = torch.einsum("cij,cj,ckj,ck->ci", Q, inverse_root, Q, m)
        return A, m, V


@dataclass(eq=False)
class AdaMaxSGLD(AdaptiveDrift):
    """SGLD with AdaMax's direction as drift.

    theta <- theta - eps (g + a A) + sqrt(2 eps tau) N(0, I);   m <- b1 m + (1 - b1) g;   u <- max(b2 u, |g|);
    A = m / (u + l), from past gradients;   a = bias_factor N.

    Source: Kim, Song & Liang 2020, section 3.3, with Kingma & Ba 2015, Algorithm 2.

    Parameters
    ----------
    bias_factor : float >= 0, default 0.01
        a / N, dimensionless. At 0 the chain is SGLD, bit for bit.
    beta1, beta2 : floats in [0, 1), default 0.9 and 0.999
        Memories of the average and of the maximum.
    regularizer : float > 0, default 1e-8
        l, keeps A finite; units of g.
    preconditioner : PSGLD or None, default None
        Scales drift and noise; None is the identity. At bias 0 the chain is then the preconditioner's own.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import AdaMaxSGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2),
    ...     sampler=AdaMaxSGLD(bias_factor=0.1), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    bias_factor: Coefficient = 0.01
    beta1: Coefficient = 0.9
    beta2: Coefficient = 0.999
    regularizer: Coefficient = 1e-8
    preconditioner: PSGLD | None = None

    source: ClassVar[str] = "Kim, Song & Liang 2020, section 3.3"
    use: ClassVar[str] = "As asgld, where single gradients are far larger than the rest."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("beta1", "a number in [0, 1)", in_unit_interval)
        self.check_field("beta2", "a number in [0, 1)", in_unit_interval)
        self.check_field("regularizer", "a number > 0", positive)

    def remember(self, state: AdaptiveDriftState, g: Theta) -> tuple[Theta, Theta, torch.Tensor]:
        """Return m / (u + l), m and u."""
        m = average(self.beta1, state.first, g)
        u = torch.maximum(scale(self.beta2, state.second), g.abs())
        return m / plus(self.regularizer, u), m, u


@dataclass(eq=False)
class AdadeltaSGLD(AdaptiveDrift):
    """SGLD with Adadelta's direction as drift.

    theta <- theta - eps (g + a A) + sqrt(2 eps tau) N(0, I);   E <- r E + (1 - r) g^2;   A = sqrt(X + d) / sqrt(E + d) g;
    X <- r X + (1 - r) A^2, from past gradients;   a = bias_factor N.

    Source: Kim, Song & Liang 2020, section 3.3, with Zeiler 2012, Algorithm 1.

    Parameters
    ----------
    bias_factor : float >= 0, default 0.01
        a / N, dimensionless. At 0 the chain is SGLD, bit for bit.
    memory : float in [0, 1), default 0.95
        r, of both averages.
    regularizer : float > 0, default 1e-6
        d, starts the motion and keeps A finite; units of g^2.
    preconditioner : PSGLD or None, default None
        Scales drift and noise; None is the identity. At bias 0 the chain is then the preconditioner's own.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import AdadeltaSGLD
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2),
    ...     sampler=AdadeltaSGLD(bias_factor=0.1), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    bias_factor: Coefficient = 0.01
    memory: Coefficient = 0.95
    regularizer: Coefficient = 1e-6
    preconditioner: PSGLD | None = None

    source: ClassVar[str] = "Kim, Song & Liang 2020, section 3.3"
    use: ClassVar[str] = "As asgld, with a drift that finds its own size."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("memory", "a number in [0, 1)", in_unit_interval)
        self.check_field("regularizer", "a number > 0", positive)

    def remember(self, state: AdaptiveDriftState, g: Theta) -> tuple[Theta, Theta, torch.Tensor]:
        """Return A, E and X."""
        E = average(self.memory, state.first, g * g)
        A = (plus(self.regularizer, state.second) / plus(self.regularizer, E)).sqrt() * g
        return A, E, average(self.memory, state.second, A * A)
