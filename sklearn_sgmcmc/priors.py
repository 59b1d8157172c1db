"""Priors of the network's weights and biases, on the scale of standardised inputs.

A prior is a record of hyperparameters that knows no network. Placed on a network's layout it becomes a density: -log p over the
flat parameters (C, P) and its gradient, whose constants are tensors made once, outside the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch

from sklearn_sgmcmc._checks import check_flag
from sklearn_sgmcmc._parameters import Parameters
from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.network import Layout, bmm, softplus

Scale: TypeAlias = Coefficient | tuple[float, ...] | list[float]
"""One number, one per chain as a float64 tensor (C, 1), or one per layer of connections, the output layer last."""

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LARGEST_LOG_ODDS = 80.0
"""Beyond, exp would leave float32, and torch's exp takes ten times as long; exp(-80) is nothing even times 1 / s0^2 <= 1e12."""
PEAK = 0.5
"""Width of a peak's core as a share of its scale: steps within it keep eps times the curvature below 1/8 at temperature 1."""
SCALE_RULE = "a number between 1e-6 and 1e6, or one such number per layer"


class Constant:
    """A float64 tensor that broadcasts against theta (C, P), with one copy per dtype and device; a 0-d one is a plain float."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value if value.ndim else float(value)
        self._copies: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def like(self, theta: Theta) -> Coefficient:
        """Return the constant in the dtype and on the device of ``theta``."""
        if not isinstance(self.value, torch.Tensor):
            return self.value
        key = (theta.dtype, theta.device)
        if key not in self._copies:
            self._copies[key] = self.value.to(device=theta.device, dtype=theta.dtype)
        return self._copies[key]


class Density:
    """A prior placed on a network: -log p over its parameters.

    Attributes
    ----------
    initial_scale : tensor, 0-d or (P,)
        Standard deviation that random initial weights do not exceed.
    threshold : tensor of shape (1, P) or (C, P), float64, or None
        Absolute values below which a parameter belongs to the prior's spike; 0 for those that have none, None if no parameter has
        one.
    prune : bool
        Whether predictions set the parameters below their threshold to 0.
    narrowest_core : float
        Least width of a core that steps must resolve (a spike's standard deviation, the width of a peak), inf if the density has
        none but its curvature.
    """

    threshold: torch.Tensor | None = None
    prune: bool = False
    narrowest_core: float = math.inf

    def __init__(self, scale: torch.Tensor) -> None:
        self.initial_scale = scale.amax(0) if scale.ndim else scale

    def grad(self, theta: Theta) -> Theta:
        """Return the gradient of -log p, shape (C, P)."""
        raise NotImplementedError

    def add_grad(self, gradient: Theta, theta: Theta) -> None:
        """Add the gradient of -log p to ``gradient``."""
        gradient.add_(self.grad(theta))

    def precision(self, theta: Theta) -> torch.Tensor | None:
        """Return p, two-dimensional and broadcastable to (C, P), if the gradient is p theta; else None."""
        return None

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of -log p times vectors (C, F, P): as it stands, for independent parameters."""
        return hessian_product(self.value, theta, torch.ones_like(theta))[:, None] * vectors

    def value(self, theta: Theta) -> PerChain:
        """Return -log p in nats, summed in float64, shape (C,)."""
        raise NotImplementedError


def hessian_product(value: Callable[[Theta], PerChain], theta: Theta, vector: Theta) -> Theta:
    """Return the Hessian of a function (C, P) -> (C,) times a vector, (C, P), by automatic differentiation."""
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        gradient = torch.autograd.grad(value(leaf).sum(), leaf, create_graph=True)[0]
        return torch.autograd.grad((gradient * vector).sum(), leaf)[0]


@dataclass(eq=False)
class Prior(Parameters):
    """Base of all priors."""

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""

    @property
    def phases(self) -> tuple[tuple[float, Prior], ...]:
        """The prior of each part of a run, with the share of the steps at which it begins."""
        return ((0.0, self),)

    @property
    def for_mode(self) -> Prior:
        """The prior under which a mode is sought before sampling begins: itself, unless its mode is where no draw would be."""
        return self

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network; raise ValueError if a field does not fit its layers."""
        raise NotImplementedError

    def per_parameter(self, name: str, layout: Layout) -> torch.Tensor:
        """Return a field in float64 as it broadcasts against (C, P): 0-d, (C, 1), or (1, P) where it has one value per layer."""
        value = getattr(self, name)
        if not isinstance(value, tuple | list):
            return torch.as_tensor(value, dtype=torch.float64)
        if len(value) != layout.n_layers:
            raise ValueError(
                f"{type(self).__name__}.{name}={value!r} has {len(value)} values, and the network has {layout.n_layers} layers of "
                f"connections: give one per layer, len(hidden_layer_sizes) + 1 = {layout.n_layers} values, or one number for all."
            )
        return torch.tensor(value, dtype=torch.float64)[layout.layer].unsqueeze(0)


@dataclass(eq=False)
class ScalePrior(Prior):
    """Base of the priors of independent parameters that differ in scale alone."""

    scale: Scale = 1.0
    fan_in: bool = field(default=False, kw_only=True)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("scale", SCALE_RULE, every(lambda scale: (scale >= 1e-6) & (scale <= 1e6)))
        check_flag(f"{type(self).__name__}.fan_in", self.fan_in)

    def placed_scale(self, layout: Layout) -> torch.Tensor:
        """Return the scale of each parameter as it broadcasts against (C, P)."""
        scale = self.per_parameter("scale", layout)
        return scale * torch.where(layout.is_weight, layout.n_in.rsqrt(), 1.0).unsqueeze(0) if self.fan_in else scale


@dataclass(eq=False)
class Normal(ScalePrior):
    """Independent N(0, scale^2) on every weight and bias.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        Standard deviation, in units of a weight between standardised quantities; a tuple has one value per layer of connections,
        len(hidden_layer_sizes) + 1 in all; a (C, 1) tensor has one per chain.
    fan_in : bool, default False
        Whether the scale of connection weights is divided by sqrt(n_in), n_in the inputs of their layer (Neal 1996, section 2.1):
        then the outputs keep their prior scale however wide the network is. Biases keep ``scale``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import Normal
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=Normal(scale=0.5), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return NormalDensity(self.placed_scale(layout))


@dataclass(eq=False)
class HierarchicalNormal(Normal):
    """N(0, s_l^2) on the weights of layer l with a learned s_l, s^2 / s_l^2 ~ Gamma(df / 2, rate df / 2); N(0, scale^2) on biases.

    s = scale / sqrt(n_in), n_in the inputs of the layer. With s_l integrated out, the P_l weights w of a layer have a multivariate
    Student t law, density proportional to (1 + |w|^2 / (df s^2)) ** (-(df + P_l) / 2): the data decide how large weights are, layer
    by layer, and no scale has to be sampled.

    Source: Neal 1996, section 3.1: hyperparameters that control the weights of a layer, with Gamma priors.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        As of ``Normal``: the scale near which those of the layers are held, before the division by sqrt(n_in).
    fan_in : bool, default True
        False is s = scale.
    df : float in [0.1, 1e6], default 2
        How firmly s_l is held near s, dimensionless: at 2 nine of ten prior draws of s_l lie between 0.58 s and 4.4 s; 1e6 is
        ``Normal``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import HierarchicalNormal
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=HierarchicalNormal(), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    fan_in: bool = field(default=True, kw_only=True)
    df: Coefficient = field(default=2.0, kw_only=True)

    @property
    def for_mode(self) -> Prior:
        """N(0, scale^2): a mode of this prior has s_l near 0, since a small s_l makes small weights dense."""
        return Normal(self.scale)

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("df", "a number in [0.1, 1e6]", lambda df: (df >= 0.1) & (df <= 1e6))

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return HierarchicalDensity(
            self.placed_scale(layout), self.per_parameter("scale", layout), self.per_parameter("df", layout), layout
        )


class NormalDensity(Density):
    """Independent N(0, s^2)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__(scale)
        self._precision = Constant(1.0 / (scale * scale))
        self._as_matrix = Constant((1.0 / (scale * scale)).expand(1, 1) if scale.ndim == 0 else 1.0 / (scale * scale))
        self._log_norm = Constant(scale.log() + HALF_LOG_2PI)

    def grad(self, theta: Theta) -> Theta:
        """Return theta / s^2."""
        return theta * self._precision.like(theta)

    def add_grad(self, gradient: Theta, theta: Theta) -> None:
        """Add theta / s^2 to ``gradient`` in one pass; the two forms have the same bits."""
        precision = self._precision.like(theta)
        if isinstance(precision, torch.Tensor):
            gradient.addcmul_(theta, precision)
        else:
            gradient.add_(theta, alpha=precision)

    def precision(self, theta: Theta) -> torch.Tensor:
        """Return 1 / s^2."""
        return cast(torch.Tensor, self._as_matrix.like(theta))

    def value(self, theta: Theta) -> PerChain:
        """Return sum theta^2 / (2 s^2) + log(s sqrt(2 pi))."""
        theta = theta.double()
        return (0.5 * theta.square() * self._precision.like(theta) + self._log_norm.like(theta)).sum(1)


class HierarchicalDensity(Density):
    """A multivariate Student t law for the weights of each layer, independent N(0, s^2) for the biases."""

    def __init__(self, scale: torch.Tensor, of_biases: torch.Tensor, df: torch.Tensor, layout: Layout) -> None:
        super().__init__(scale)
        members = torch.nn.functional.one_hot(layout.layer, layout.n_layers).double() * layout.is_weight[:, None]  # (P, L)
        count = members.sum(0)
        one_of_each = members.argmax(0)
        of_layer = (
            scale.expand(*scale.shape[:-1], len(members))[..., one_of_each] if scale.ndim else scale.expand(1, layout.n_layers)
        )
        spread = df * of_layer * of_layer
        self._members = Constant(members)
        self._spread = Constant(spread)
        self._power = Constant(df + count)
        self._bias_precision = Constant(torch.where(layout.is_weight, 0.0, 1.0 / (of_biases * of_biases)))
        of_weights = 0.5 * count * (spread * math.pi).log() + torch.lgamma(df / 2.0) - torch.lgamma((df + count) / 2.0)
        of_biases = torch.where(layout.is_weight, 0.0, of_biases.log() + HALF_LOG_2PI)
        self._log_norm = Constant(of_weights.sum(-1) + of_biases.sum(-1))

    def grad(self, theta: Theta) -> Theta:
        """Return (df + P_l) w / (df s^2 + |w|^2) for weights, b / s^2 for biases."""
        return theta * self.precision(theta)

    def precision(self, theta: Theta) -> torch.Tensor:
        """Return (df + P_l) / (df s^2 + |w|^2) for weights, 1 / s^2 for biases."""
        members, rate = self._rate(theta)
        return rate @ members.transpose(0, 1) + self._bias_precision.like(theta)

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return that of r (I - 2 r w w' / (df + P_l)) in each layer, r = (df + P_l) / (df s^2 + |w|^2)."""
        members, rate = self._rate(theta)
        diagonal = rate @ members.transpose(0, 1) + self._bias_precision.like(theta)
        along = torch.stack([_sums(theta * v, members) for v in vectors.unbind(1)], dim=1)
        along = along * (2.0 * rate * rate / self._power.like(theta))[:, None]
        return diagonal[:, None] * vectors - theta[:, None] * (along @ members.transpose(0, 1))

    def _rate(self, theta: Theta) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which parameters are weights of which layer, (P, L), and (df + P_l) / (df s^2 + |w_l|^2), (C, L)."""
        members = cast(torch.Tensor, self._members.like(theta))
        return members, self._power.like(theta) / (self._spread.like(theta) + _sums(theta.square(), members))

    def value(self, theta: Theta) -> PerChain:
        """Return sum_l (df + P_l) / 2 log(1 + |w_l|^2 / (df s^2)) + sum b^2 / (2 s^2) + log of the normalising constant."""
        square = theta.double().square()
        sums = _sums(square, cast(torch.Tensor, self._members.like(square)))
        tails = torch.log1p(sums / self._spread.like(square))
        of_biases = 0.5 * (square * self._bias_precision.like(square)).sum(1)
        return (0.5 * self._power.like(square) * tails).sum(1) + of_biases + self._log_norm.like(square)


def _sums(terms: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """Return the sums of terms (C, P) over the members (P, L) of each layer, (C, L).

    The bits of a matrix product depend on its shape: rows are multiplied four at a time, however many there are.
    """
    C, P = terms.shape
    padded = torch.nn.functional.pad(terms, (0, 0, 0, -C % 4)) if C % 4 else terms
    blocks = padded.view(-1, 4, P)
    return bmm(blocks, members.expand(len(blocks), -1, -1)).view(-1, members.shape[1])[:C]


@dataclass(eq=False)
class Laplace(ScalePrior):
    """Independent double exponentials, density exp(-|w| / b) / (2 b), on every weight and bias: many small weights, some large.

    The gradient sign(w) / b jumps at 0, so that no draw is exactly 0.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        b, in units of a weight between standardised quantities (the standard deviation is b sqrt 2); a tuple as for ``Normal``.
    fan_in : bool, default False
        Whether b is divided by sqrt(n_in) for connection weights, as for ``Normal``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import Laplace
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=Laplace(scale=0.5), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return LaplaceDensity(self.placed_scale(layout))


class LaplaceDensity(Density):
    """Independent exp(-|w| / b) / (2 b)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__(scale)
        self.narrowest_core = PEAK * float(scale.min())
        self._rate = Constant(1.0 / scale)
        self._log_norm = Constant((2.0 * scale).log())

    def grad(self, theta: Theta) -> Theta:
        """Return sign(theta) / b."""
        return theta.sign() * self._rate.like(theta)

    def value(self, theta: Theta) -> PerChain:
        """Return sum |theta| / b + log(2 b)."""
        theta = theta.double()
        return (theta.abs() * self._rate.like(theta) + self._log_norm.like(theta)).sum(1)


@dataclass(eq=False)
class StudentT(ScalePrior):
    """Independent Student t, density proportional to (1 + w^2 / (df s^2)) ** (-(df + 1) / 2): heavy tails leave large weights be.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        s, in units of a weight between standardised quantities; a tuple as for ``Normal``.
    df : float in [0.1, 1e6], default 4
        Degrees of freedom, dimensionless: 1 is the Cauchy law; the variance s^2 df / (df - 2) is finite for df > 2.
    fan_in : bool, default False
        Whether s is divided by sqrt(n_in) for connection weights, as for ``Normal``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import StudentT
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=StudentT(df=3), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    df: Coefficient = 4.0

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        super().check()
        self.check_field("df", "a number in [0.1, 1e6]", lambda df: (df >= 0.1) & (df <= 1e6))

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        return StudentTDensity(self.placed_scale(layout), self.per_parameter("df", layout))


class StudentTDensity(Density):
    """Independent Student t with scale s and df degrees of freedom."""

    def __init__(self, scale: torch.Tensor, df: torch.Tensor) -> None:
        super().__init__(scale)
        self.narrowest_core = PEAK * float((scale * (df / (df + 1.0)).sqrt()).min())  # the curvature at 0 is (df + 1) / (df s^2)
        self._power = Constant(df + 1.0)
        self._spread = Constant(df * scale * scale)
        self._log_norm = Constant(
            scale.log() + 0.5 * (df * math.pi).log() + torch.lgamma(df / 2.0) - torch.lgamma((df + 1.0) / 2.0)
        )

    def grad(self, theta: Theta) -> Theta:
        """Return (df + 1) theta / (df s^2 + theta^2)."""
        return theta * self._power.like(theta) / (theta.square() + self._spread.like(theta))

    def value(self, theta: Theta) -> PerChain:
        """Return sum (df + 1) / 2 log(1 + theta^2 / (df s^2)) + log of the normalising constant."""
        theta = theta.double()
        tail = torch.log1p(theta.square() / self._spread.like(theta))
        return (0.5 * self._power.like(theta) * tail + self._log_norm.like(theta)).sum(1)


@dataclass(eq=False)
class SpikeSlab(Prior):
    """Spike and slab: lambda N(0, s1^2) + (1 - lambda) N(0, s0^2) on every connection weight, N(0, s1^2) on every bias.

    The gradient of -log p is w [r / s1^2 + (1 - r) / s0^2], r = P(slab | w). A weight is kept if r >= 1/2, which is
    |w| >= sqrt(2 log[(1 - lambda) s1 / (lambda s0)] s0^2 s1^2 / (s1^2 - s0^2)), and always if (1 - lambda) s1 <= lambda s0.
    Source: Kim, Song & Liang 2020, equation 4.

    The spike is stiff: it is sampled rightly only with eps < s0^2 and sqrt(2 eps tau) < s0, eps = learning_rate / N. ``fit`` warns
    where a given learning rate is too large, and makes its own default small enough. With the default spike 0.2, the largest
    default learning rate, is within bounds at temperature 1 from N = 160 rows on.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        s1, the standard deviation of the slab, in units of a weight between standardised quantities; a tuple has one value per
        layer of connections, len(hidden_layer_sizes) + 1 in all.
    spike_scale : float between 1e-6 and ``scale`` or tuple of such floats, default 0.05
        s0, the standard deviation of the spike, in the same units.
    slab_probability : float in (0, 1) or tuple of such floats, default 0.5
        lambda, the prior share of weights in the slab.
    prune : bool, default True
        Whether predictions set the weights that are not kept to 0. ``keep_mask_`` and ``sparsity_`` tell what is kept either way.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import SpikeSlab
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=SpikeSlab(), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    >>> 0 < model.sparsity_ < 1
    True
    """

    scale: Scale = 1.0
    spike_scale: Scale = 0.05
    slab_probability: Scale = 0.5
    prune: bool = True

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        for name in ("scale", "spike_scale"):
            self.check_field(name, SCALE_RULE, every(lambda scale: (scale >= 1e-6) & (scale <= 1e6)))
        rule = "a number strictly between 0 and 1, or one such number per layer"
        self.check_field("slab_probability", rule, every(lambda share: (share > 0) & (share < 1)))
        check_flag("SpikeSlab.prune", self.prune)

    def place(self, layout: Layout) -> Density:
        """Return the density over the parameters of a network."""
        slab, spike, share = (self.per_parameter(name, layout) for name in ("scale", "spike_scale", "slab_probability"))
        if not bool((spike < slab).all()):
            raise ValueError(
                f"SpikeSlab.spike_scale={self.spike_scale!r} must be less than scale={self.scale!r} in every layer: the spike "
                "is the narrow part; lower spike_scale or increase scale."
            )
        return SpikeSlabDensity(slab, spike, share, layout.is_weight, prune=bool(self.prune))


class SpikeSlabDensity(Density):
    """Mixtures of N(0, s1^2) and N(0, s0^2); for a bias both are N(0, s1^2)."""

    def __init__(
        self, slab: torch.Tensor, spike: torch.Tensor, share: torch.Tensor, is_weight: torch.Tensor, *, prune: bool
    ) -> None:
        super().__init__(slab)
        self.prune = prune
        self.narrowest_core = float(spike.min())
        spike = torch.where(is_weight.unsqueeze(0), spike, slab)
        slab_precision, spike_precision = slab.square().reciprocal(), spike.square().reciprocal()
        log_odds = (share * spike / ((1.0 - share) * slab)).log()  # of the slab at w = 0
        growth = 0.5 * (spike_precision - slab_precision)
        self.threshold = torch.where(is_weight, (-log_odds / growth).clamp_min(0.0).sqrt(), 0.0)
        self._slab_precision, self._spike_precision = Constant(slab_precision), Constant(spike_precision)
        self._log_odds, self._growth = Constant(log_odds), Constant(growth)
        self._slab_log_norm = Constant(slab.log() + HALF_LOG_2PI - share.log())

    def _slab_log_odds(self, theta: Theta) -> torch.Tensor:
        """Return log P(slab | w) / P(spike | w) of each parameter."""
        return self._log_odds.like(theta) + self._growth.like(theta) * theta.square()

    def grad(self, theta: Theta) -> Theta:
        """Return theta [r / s1^2 + (1 - r) / s0^2], r = P(slab | theta)."""
        odds = torch.exp(self._slab_log_odds(theta).clamp(max=LARGEST_LOG_ODDS))
        spike = 1.0 / (1.0 + odds)  # 1 - r to full relative accuracy: 1 / s0^2 is large
        return theta * ((1.0 - spike) * self._slab_precision.like(theta) + spike * self._spike_precision.like(theta))

    def value(self, theta: Theta) -> PerChain:
        """Return -sum log[lambda N(theta; 0, s1^2) + (1 - lambda) N(theta; 0, s0^2)]."""
        theta = theta.double()
        slab = 0.5 * theta.square() * self._slab_precision.like(theta) + self._slab_log_norm.like(theta)
        return (slab - softplus(-self._slab_log_odds(theta))).sum(1)


@dataclass(eq=False)
class PriorSwitch(Prior):
    """One prior for the first steps of a run, another from there on: a dense network is found first and made sparse then.

    Source: Kim, Song & Liang 2020, the sparse MNIST experiment: 100 epochs with a normal prior, then 150 with a spike and slab.

    Parameters
    ----------
    before : Prior, default Normal()
        Prior of the first steps.
    after : Prior, default SpikeSlab()
        Prior of the others, that of all kept draws.
    at : float in [0, 1), default 0.4
        Share of all steps that run with ``before``: the change must come before the first kept draw. Momenta are drawn anew there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import PriorSwitch
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=PriorSwitch(), sampler="sgld", max_iter=300, n_draws=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    >>> 0 < model.sparsity_ < 1
    True
    """

    before: Prior = field(default_factory=Normal)
    after: Prior = field(default_factory=SpikeSlab)
    at: float = 0.4

    def check(self) -> None:
        """Raise ValueError if a field lies outside its domain."""
        self.check_field("at", "a share of the steps in [0, 1)", lambda at: 0 <= at < 1)
        for name in ("before", "after"):
            prior = getattr(self, name)
            if not isinstance(prior, Prior) or isinstance(prior, PriorSwitch):
                raise ValueError(
                    f"PriorSwitch.{name}={prior!r} must be a prior that does not itself change: give an object such as Normal()."
                )
            prior.check()

    @property
    def phases(self) -> tuple[tuple[float, Prior], ...]:
        """The prior of each part of a run, with the share of the steps at which it begins."""
        return (0.0, self.before), (self.at, self.after)

    def place(self, layout: Layout) -> Density:
        """Return the density of ``after``: the one that kept draws have."""
        return self.after.place(layout)


PRIORS: dict[str, type[Prior]] = {
    "normal": Normal,
    "hierarchical_normal": HierarchicalNormal,
    "laplace": Laplace,
    "student_t": StudentT,
    "spike_slab": SpikeSlab,
    "prior_switch": PriorSwitch,
}


def every(holds: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """Return the rule that a value is a number, one per layer or one per chain, and that ``holds`` for each."""

    def rule(value: Any) -> torch.Tensor:
        values = torch.as_tensor(value, dtype=torch.float64)
        n_axes = values.ndim if isinstance(value, torch.Tensor) else int(isinstance(value, tuple | list))
        return holds(values) & (values.ndim == n_axes)

    return rule
