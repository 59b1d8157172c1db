"""Priors of sparse networks: spike and slab, and the change to it during a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch

from sklearn_sgmcmc._checks import check_flag
from sklearn_sgmcmc._typing import PerChain, Theta
from sklearn_sgmcmc.network import Layout, softplus
from sklearn_sgmcmc.priors._base import HALF_LOG_2PI, SCALE_RULE, Constant, Density, Prior, Scale, every
from sklearn_sgmcmc.priors._normal import Normal

LARGEST_LOG_ODDS = 80.0
"""Beyond, exp would leave float32, and torch's exp takes ten times as long; exp(-80) is nothing even times 1 / s0^2 <= 1e12."""


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
        return theta.square().mul_(self._growth.like(theta)).add_(self._log_odds.like(theta))

    def precision(self, theta: Theta) -> torch.Tensor:
        """Return r / s1^2 + (1 - r) / s0^2, r = P(slab | theta)."""
        spike = self._slab_log_odds(theta).clamp_(max=LARGEST_LOG_ODDS).exp_().add_(1.0).reciprocal_()
        slab = 1.0 - spike  # of the two, 1 - r must have full relative accuracy: 1 / s0^2 is large
        return slab.mul_(self._slab_precision.like(theta)).addcmul_(spike, cast(torch.Tensor, self._spike_precision.like(theta)))

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
