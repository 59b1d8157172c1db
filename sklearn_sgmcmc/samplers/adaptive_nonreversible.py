"""Non-reversible Langevin dynamics whose skew matrix learns, during burn-in, to make the potential fall."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from sklearn_sgmcmc._typing import Coefficient, Control, Noise, Potential, Theta
from sklearn_sgmcmc.samplers._base import Law, Sampler, add_scaled, not_negative, positive, scale
from sklearn_sgmcmc.samplers.langevin import langevin_move


@lru_cache(maxsize=64)
def free_pairs(n_params: int, n_pairs: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows i and columns j < i of the free entries S(i, j), at most ``n_pairs`` of them.

    Up to P - 1 pairs are neighbours (j + 1, j), spread evenly over the parameters; more also take pairs further apart.
    """
    if n_pairs < n_params - 1:
        spread = ((2 * k + 1) * (n_params - 1) // (2 * n_pairs) for k in range(n_pairs))
        pairs = [(j + 1, j) for j in spread]
    else:
        nearest_first = ((j + distance, j) for distance in range(1, n_params) for j in range(n_params - distance))
        pairs = list(islice(nearest_first, n_pairs))
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    return tuple(torch.tensor(part, dtype=torch.int64, device=device) for part in (rows, columns))  # type: ignore[return-value]


class SkewPairs(NamedTuple):
    """The free entries' rows and columns, (F,) each: S(rows, columns) = values, S(columns, rows) = -values."""

    rows: torch.Tensor
    columns: torch.Tensor

    def only(self, k: int) -> SkewPairs:
        """Return the k-th pair alone."""
        return SkewPairs(self.rows[k : k + 1], self.columns[k : k + 1])

    def times(self, values: torch.Tensor, vector: Theta) -> Theta:
        """Return S v, (C, P), for the skew matrix with the free entries ``values`` (C, F)."""
        product = torch.zeros_like(vector)
        product.index_add_(1, self.rows, values * vector[:, self.columns])
        return product.index_add_(1, self.columns, -values * vector[:, self.rows])


def clip(tensor: torch.Tensor, limit: Coefficient) -> torch.Tensor:
    """Return a (C, ...) tensor projected onto [-limit, limit]."""
    largest = scale(limit, torch.ones_like(tensor))
    return torch.minimum(torch.maximum(tensor, -largest), largest)


class AdaptiveNonReversible(Sampler):
    """Base of theta <- theta - eps (I + S) g + sqrt(2 eps tau) N(0, I) with S(i, j) <- S(i, j) - k eps dU / dS(i, j).

    S has ``n_pairs`` free entries, starts at N(0, skew_scale^2) and is kept in [-skew_limit, skew_limit]. k eps = alpha_S / N: the
    derivative is that of the potential per datum at the rate alpha_S = k eps N.
    """

    skew_scale: Coefficient
    skew_limit: Coefficient
    skew_rate: Coefficient
    n_pairs: int | None
    adapt: Literal["burn_in", "always"]

    affine = "frozen"
    default_learning_rate: ClassVar[float] = 0.05

    @property
    def law(self) -> Law:  # type: ignore[override]  # a class fact of most samplers
        """Frozen, S leaves the target alone as eps -> 0; an S that depends on where the chain is does not quite."""
        return "small step" if self.adapt == "burn_in" else "biased"

    @property
    def stability_limit(self) -> Coefficient:
        """2 / (1 + skew_limit^2), that of S at its limit on a round Gaussian."""
        return 2.0 / (1.0 + self.skew_limit * self.skew_limit)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("skew_scale", "a number >= 0", not_negative)
        self.check_field("skew_limit", "a number >= 0", not_negative)
        self.check_field("skew_rate", "a number >= 0", not_negative)
        self.check_field("n_pairs", "an integer >= 1, or None", lambda F: F is None or (isinstance(F, Integral) and int(F) >= 1))
        self.check_field("adapt", "'burn_in' or 'always'", ("burn_in", "always").__contains__)

    def adapting(self, control: Control) -> bool:
        """Return whether S may move in this step."""
        return control.adapt or self.adapt == "always"

    def pairs(self, theta: Theta) -> SkewPairs:
        """Return which entries of S are free."""
        P = theta.shape[1]
        return SkewPairs(*free_pairs(P, P - 1 if self.n_pairs is None else self.n_pairs, theta.device))

    def start(self, theta: Theta, noise: Noise) -> torch.Tensor:
        """Return the first free entries, (C, F)."""
        rows = self.pairs(theta).rows
        return clip(scale(self.skew_scale, noise(theta.new_empty(len(theta), len(rows)))), self.skew_limit)

    def descend(self, skew: torch.Tensor, slope: torch.Tensor, control: Control) -> torch.Tensor:
        """Return S - k eps dU / dS, projected."""
        return clip(add_scaled(skew, -self.skew_rate * control.step_size, slope), self.skew_limit)

    def move(self, theta: Theta, skew: torch.Tensor, potential: Potential, noise: Noise, control: Control) -> Theta:
        """Return theta - eps (I + S) g + sqrt(2 eps tau) N(0, I)."""
        g = potential.grad(theta)
        return langevin_move(theta, g + self.pairs(theta).times(skew, g), noise, control)

    def step(self, state: Any, potential: Potential, noise: Noise, control: Control) -> Any:
        """Advance by one step; once frozen this is the sampler with a fixed S, and as cheap."""
        if self.adapting(control):
            return self.adapting_step(state, potential, noise, control)
        return state._replace(theta=self.move(state.theta, state.skew, potential, noise, control))

    def adapting_step(self, state: Any, potential: Potential, noise: Noise, control: Control) -> Any:
        """Advance by one step and move S."""
        raise NotImplementedError


class HessianState(NamedTuple):
    """theta (C, P), the free entries of S (C, F) and the derivatives D of theta by them (C, F, P)."""

    theta: Theta
    skew: torch.Tensor
    sensitivity: torch.Tensor


@dataclass(eq=False)
class NonReversibleHessian(AdaptiveNonReversible):
    """Adaptive non-reversible SGLD by the derivative of the path in S.

    theta <- theta - eps (I + S) g + sqrt(2 eps tau) N(0, I);   S(i, j) <- S(i, j) - k eps g^T D(i, j);
    D(i, j) <- D(i, j) - eps (I + S) H D(i, j) - eps (e_i g_j - e_j g_i),   H the Hessian, D = 0 at first.

    While S adapts, a step costs one Hessian-vector product per free entry (all as one batch, each about as much as four gradients)
    besides its gradient; afterwards one gradient.

    Source: Krishnamurthy & Yin 2020, Algorithm 1 (printed with (e_j - e_i)^T g, which has the wrong shape).

    Parameters
    ----------
    skew_scale : float >= 0, default 0.5
        Standard deviation of the first free entries of S, dimensionless.
    skew_limit : float >= 0, default 1 (the paper suggests 2, with shorter steps)
        Bound of their absolute values.
    skew_rate : float >= 0, default 0.1
        k = alpha_S / (eps N), dimensionless.
    n_pairs : int >= 1 or None, default 4
        F, the number of free entries; None is P - 1, all neighbours.
    sensitivity_limit : float > 0, default 1e3
        Bound of the entries of D, which would grow without one where H is indefinite.
    adapt : "burn_in" or "always"
        "burn_in" freezes S before the first kept draw.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import NonReversibleHessian
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=NonReversibleHessian(), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    skew_scale: Coefficient = 0.5
    skew_limit: Coefficient = 1.0
    skew_rate: Coefficient = 0.1
    n_pairs: int | None = 4
    sensitivity_limit: Coefficient = 1e3
    adapt: Literal["burn_in", "always"] = "burn_in"

    needs: ClassVar[frozenset[str]] = frozenset({"hvp"})
    source: ClassVar[str] = "Krishnamurthy & Yin 2020, Algorithm 1"
    use: ClassVar[str] = "Small models in which a better S is worth Hessian products during burn-in."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("sensitivity_limit", "a number > 0", positive)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> HessianState:
        """Start at ``theta`` with a random S and D = 0."""
        skew = self.start(theta, noise)
        return HessianState(theta, skew, theta.new_zeros(*skew.shape, theta.shape[1]))

    def adapting_step(self, state: HessianState, potential: Potential, noise: Noise, control: Control) -> HessianState:
        """Advance by one step of Algorithm 1."""
        theta, skew, D = state
        pairs = self.pairs(theta)
        g = potential.grad(theta)
        moved = langevin_move(theta, g + pairs.times(skew, g), noise, control)
        S = self.descend(skew, torch.einsum("cp,cfp->cf", g, D), control)
        return HessianState(moved, S, self._follow(theta, skew, D, g, potential, control))

    def _follow(
        self, theta: Theta, skew: torch.Tensor, D: torch.Tensor, g: Theta, potential: Potential, control: Control
    ) -> torch.Tensor:
        """Return D after the step that was taken from ``theta`` with S."""
        pairs = self.pairs(theta)
        curved = potential.hvp(theta, D)
        followed = []
        for k in range(D.shape[1]):
            turned = curved[:, k] + pairs.times(skew, curved[:, k]) + pairs.only(k).times(torch.ones_like(skew[:, :1]), g)
            followed.append(clip(add_scaled(D[:, k], -control.step_size, turned), self.sensitivity_limit))
        return torch.stack(followed, dim=1) if followed else D


class PerturbedState(NamedTuple):
    """theta = theta+ and theta- (C, P), and the free entries of S (C, F)."""

    theta: Theta
    minus: Theta
    skew: torch.Tensor


@dataclass(eq=False)
class NonReversibleSPSA(AdaptiveNonReversible):
    """Adaptive non-reversible SGLD by simultaneous perturbation: two chains with the same noise and data, one kept.

    theta+- <- theta+- - eps (I + S +- mu Delta) g(theta+-) + sqrt(2 eps tau) N(0, I), Delta skew with entries +-1;
    S(i, j) <- S(i, j) - k eps [U(theta+) - U(theta-)] / (2 mu Delta(i, j)).

    theta+ is kept. While S adapts, a step costs two gradients and two potentials; afterwards one gradient.

    Source: Krishnamurthy & Yin 2020, Algorithm 2.

    Parameters
    ----------
    skew_scale : float >= 0, default 0.5
        Standard deviation of the first free entries of S, dimensionless.
    skew_limit : float >= 0, default 1 (the paper suggests 2, with shorter steps)
        Bound of their absolute values.
    skew_rate : float >= 0, default 0.1
        k = alpha_S / (eps N), dimensionless.
    perturbation : float > 0, default 0.05
        mu, dimensionless.
    n_pairs : int >= 1 or None, default None
        F, the number of free entries; None is P - 1, all neighbours: S is tridiagonal.
    adapt : "burn_in" or "always"
        "burn_in" freezes S before the first kept draw.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import NonReversibleSPSA
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=NonReversibleSPSA(), step_size=0.05, n_steps=500
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    skew_scale: Coefficient = 0.5
    skew_limit: Coefficient = 1.0
    skew_rate: Coefficient = 0.1
    perturbation: Coefficient = 0.05
    n_pairs: int | None = None
    adapt: Literal["burn_in", "always"] = "burn_in"

    source: ClassVar[str] = "Krishnamurthy & Yin 2020, Algorithm 2"
    use: ClassVar[str] = "As nr_sgld_hessian for any number of entries of S, at the price of two gradients during burn-in."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("perturbation", "a number > 0", positive)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> PerturbedState:
        """Start both chains at ``theta`` with a random S."""
        return PerturbedState(theta, theta, self.start(theta, noise))

    def adapting_step(self, state: PerturbedState, potential: Potential, noise: Noise, control: Control) -> PerturbedState:
        """Advance by one step of Algorithm 2."""
        sign = random_signs(noise, state.skew)
        plus, minus = self.both(state.theta, state.minus, state.skew, sign, potential, noise, control)
        slope = scale(0.5 / self.perturbation, sign * difference(potential, plus, minus, sign))
        return PerturbedState(plus, minus, self.descend(state.skew, slope, control))

    def both(
        self,
        plus: Theta,
        minus: Theta,
        skew: torch.Tensor,
        sign: torch.Tensor,
        potential: Potential,
        noise: Noise,
        control: Control,
    ) -> tuple[Theta, Theta]:
        """Return both chains after a step with S + mu Delta and S - mu Delta and the same noise."""
        shift = scale(self.perturbation, sign)
        same = noise(plus)
        return (
            self.move(plus, skew + shift, potential, lambda like: same, control),
            self.move(minus, skew - shift, potential, lambda like: same, control),
        )


def random_signs(noise: Noise, like: torch.Tensor) -> torch.Tensor:
    """Return independent +-1, the signs of normals."""
    return torch.where(noise(like) >= 0, 1.0, -1.0).to(like.dtype)


def difference(potential: Potential, plus: Theta, minus: Theta, like: torch.Tensor) -> torch.Tensor:
    """Return U(theta+) - U(theta-), (C, 1), in the dtype of ``like``."""
    return (potential.value(plus) - potential.value(minus))[:, None].to(like.dtype)


class TwoScaleState(NamedTuple):
    """theta (C, P) and the free entries of S (C, F)."""

    theta: Theta
    skew: torch.Tensor


@dataclass(eq=False)
class NonReversibleSPSA2(NonReversibleSPSA):
    """Adaptive non-reversible SGLD by simultaneous perturbation on two time scales.

    Every step of the slow chain theta, which runs with S, restarts theta+- at theta and moves them n times with S +- mu Delta, the
    same noise and fresh minibatches: D(i, j) <- D(i, j) + [U(theta+) - U(theta-)] / (2 mu Delta(i, j));  then S <- S - k eps D.

    While S adapts, a step costs 2 n + 1 gradients, 2 n potentials and n + 1 minibatches (the epochs of a fit count one);
    afterwards one gradient.

    Source: Krishnamurthy & Yin 2020, Algorithm 3.

    Parameters
    ----------
    skew_scale : float >= 0, default 0.5
        Standard deviation of the first free entries of S, dimensionless.
    skew_limit : float >= 0, default 1 (the paper suggests 2, with shorter steps)
        Bound of their absolute values.
    skew_rate : float >= 0, default 0.1
        k = alpha_S / (eps N), dimensionless.
    perturbation : float > 0, default 0.05
        mu, dimensionless.
    n_pairs : int >= 1 or None, default None
        F, the number of free entries; None is P - 1, all neighbours: S is tridiagonal.
    adapt : "burn_in" or "always"
        "burn_in" freezes S before the first kept draw.
    n_inner : int >= 1, default 5
        n, the fast steps per slow step.

    Examples
    --------
    >>> import torch
    >>> from sklearn_sgmcmc.samplers import NonReversibleSPSA2
    >>> from sklearn_sgmcmc.sampling import sample
    >>> draws = sample(
    ...     lambda x: 0.5 * x.square().sum(1), torch.zeros(64, 2), sampler=NonReversibleSPSA2(), step_size=0.1, n_steps=150
    ... )
    >>> abs(float(draws.values.var()) - 1) < 0.15
    True
    """

    n_inner: int = 5

    needs: ClassVar[frozenset[str]] = frozenset({"fresh"})
    source: ClassVar[str] = "Krishnamurthy & Yin 2020, Algorithm 3"
    use: ClassVar[str] = "As nr_sgld_spsa, where S must follow quickly: eleven gradients a step during burn-in."

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("n_inner", "an integer >= 1", lambda n: isinstance(n, Integral) and int(n) >= 1)

    def init(self, theta: Theta, potential: Potential, noise: Noise, control: Control) -> TwoScaleState:  # type: ignore[override]
        """Start at ``theta`` with a random S."""
        return TwoScaleState(theta, self.start(theta, noise))

    def adapting_step(  # type: ignore[override]  # the fast chains live within a step
        self, state: TwoScaleState, potential: Potential, noise: Noise, control: Control
    ) -> TwoScaleState:
        """Advance the slow chain by one step of Algorithm 3."""
        theta, skew = state
        sign = random_signs(noise, skew)
        plus = minus = theta
        total = torch.zeros_like(sign)
        fast = potential
        for _ in range(self.n_inner):
            fast = fast.fresh()
            plus, minus = self.both(plus, minus, skew, sign, fast, noise, control)
            total = total + difference(fast, plus, minus, sign)
        slope = scale(0.5 / self.perturbation, sign * total)
        return TwoScaleState(self.move(theta, skew, potential, noise, control), self.descend(skew, slope, control))
