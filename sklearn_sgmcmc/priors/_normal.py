"""Normal priors, of a given scale or with a learned scale for each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import torch

from sklearn_sgmcmc._typing import Coefficient, PerChain, Theta
from sklearn_sgmcmc.network import Layout, bmm, compiled_network
from sklearn_sgmcmc.priors._base import HALF_LOG_2PI, Constant, Density, Prior, ScalePrior


@dataclass(eq=False)
class Normal(ScalePrior):
    """Independent N(0, scale^2) on every weight and bias.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        Standard deviation, in units of a weight between standardised quantities; a tuple has one value per layer of connections,
        len(hidden_layer_sizes) + 1 in all; a (C, 1) tensor has one per chain.
    fan_in : bool or float >= 1, default False
        Whether the scale of connection weights is divided by sqrt(n_in), n_in the inputs of their layer (Neal 1996, section 2.1):
        then the outputs keep their prior scale however wide the network is. A number k leaves it as it is up to k inputs, and
        divides it by sqrt(n_in / k) beyond. Biases keep ``scale``.

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
class FanInNormal(Normal):
    """Independent N(0, scale^2) on the weights and biases of layers of up to ``fan_in`` inputs, narrower weights in wider ones.

    Weights of a layer of n_in > fan_in inputs have N(0, scale^2 fan_in / n_in): a sum over hundreds of inputs is a priori no larger
    than one over ``fan_in``.

    Parameters
    ----------
    scale : float between 1e-6 and 1e6 or tuple of such floats, default 1
        As of ``Normal``.
    fan_in : bool or float >= 1, default 64
        As of ``Normal``: number of inputs beyond which the scale of connection weights falls.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_sgmcmc import BayesianMLPClassifier
    >>> from sklearn_sgmcmc.priors import FanInNormal
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMLPClassifier((5,), prior=FanInNormal(fan_in=3), sampler="sgld", max_iter=300, n_draws=20, random_state=0)
    >>> model = model.fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    fan_in: bool | float = field(default=64.0, kw_only=True)


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
    fan_in : bool or float >= 1, default True
        False is s = scale; a number as of ``Normal``.
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

    fan_in: bool | float = field(default=True, kw_only=True)
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

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors / s^2."""
        return self.precision(theta)[:, None] * vectors

    def value(self, theta: Theta) -> PerChain:
        """Return sum theta^2 / (2 s^2) + log(s sqrt(2 pi))."""
        theta = theta.double()
        return (0.5 * theta.square() * self._precision.like(theta) + self._log_norm.like(theta)).sum(1)


class HierarchicalDensity(Density):
    """A multivariate Student t law for the weights of each layer, independent N(0, s^2) for the biases.

    All that is needed of theta are the sums of squares over groups of parameters: the weights, then the biases, of each layer.
    """

    def __init__(self, scale: torch.Tensor, of_biases: torch.Tensor, df: torch.Tensor, layout: Layout) -> None:
        super().__init__(scale)
        L = layout.n_layers
        group = torch.where(layout.is_weight, layout.layer, layout.layer + L)
        self._members = Constant(torch.nn.functional.one_hot(group, 2 * L).double())  # (P, 2 L)
        self._of_run, lengths = torch.unique_consecutive(group, return_counts=True)
        self._starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        count = torch.bincount(group, minlength=2 * L).double()
        one_of_each = torch.tensor([int((group == number).nonzero()[0]) for number in range(2 * L)])
        both = torch.where(layout.is_weight, scale, of_biases)
        both = both.expand(*both.shape[:-1], len(layout.layer))[..., one_of_each].reshape(-1, 2 * L)
        spread, of_biases = df * both[:, :L] ** 2, both[:, L:]
        self._spread = Constant(spread)
        self._power = Constant(df + count[:L])
        self._bias_precision = Constant(of_biases**-2)
        of_weights = 0.5 * count[:L] * (spread * math.pi).log() + torch.lgamma(df / 2.0) - torch.lgamma((df + count[:L]) / 2.0)
        log_norm = (of_weights + count[L:] * (of_biases.log() + HALF_LOG_2PI)).sum(-1)
        self._log_norm = Constant(log_norm)
        laws = (spread, df + count[:L], of_biases**-2, log_norm[..., None])
        rows = max(len(law) if law.ndim > 1 else 1 for law in laws)
        self._laws = torch.cat([law.expand(rows, -1) for law in laws], dim=1)  # as the kernel reads them

    def precision(self, theta: Theta) -> torch.Tensor:
        """Return (df + P_l) / (df s^2 + |w|^2) for weights, 1 / s^2 for biases."""
        return self.value_and_precision(theta)[1]

    def value_and_precision(self, theta: Theta) -> tuple[PerChain, torch.Tensor]:
        """Return both, from the same sums."""
        kernel = compiled_network(theta)
        if kernel is not None:
            return kernel.hierarchical(theta, self._starts, self._of_run, self._laws)
        squares = self._squares(theta)
        return self._value(squares), self._spread_out(self._rate(squares), theta)

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return that of r (I - 2 r w w' / (df + P_l)) in each layer, r = (df + P_l) / (df s^2 + |w|^2)."""
        squares = self._squares(theta)
        rate, L = self._rate(squares), squares.shape[1] // 2
        members = cast(torch.Tensor, self._members.like(squares))
        along = torch.stack([_sums((theta * v).double(), members) for v in vectors.unbind(1)], dim=1)
        along[..., :L] *= (2.0 * rate * rate / self._power.like(squares))[:, None]
        along[..., L:] = 0.0  # the biases are independent
        return self._spread_out(rate, theta)[:, None] * vectors - theta[:, None] * (along @ members.transpose(0, 1)).to(theta.dtype)

    def value(self, theta: Theta) -> PerChain:
        """Return sum_l (df + P_l) / 2 log(1 + |w_l|^2 / (df s^2)) + sum b^2 / (2 s^2) + log of the normalising constant."""
        return self.value_and_precision(theta)[0]

    def _squares(self, theta: Theta) -> torch.Tensor:
        """Return the sums of squares of each group, (C, 2 L) float64."""
        square = theta.double().square()
        return _sums(square, cast(torch.Tensor, self._members.like(square)))

    def _rate(self, squares: torch.Tensor) -> torch.Tensor:
        """Return (df + P_l) / (df s^2 + |w_l|^2), (C, L) float64."""
        L = squares.shape[1] // 2
        return self._power.like(squares) / (self._spread.like(squares) + squares[:, :L])

    def _spread_out(self, rate: torch.Tensor, theta: Theta) -> torch.Tensor:
        """Return the rate of each weight and the precision of each bias, (C, P), in the dtype of ``theta``."""
        of_biases = cast(torch.Tensor, self._bias_precision.like(rate)).expand(len(rate), -1)
        members = cast(torch.Tensor, self._members.like(theta))  # one of each row is 1: the product is exact
        return torch.cat([rate, of_biases], dim=1).to(theta.dtype) @ members.transpose(0, 1)

    def _value(self, squares: torch.Tensor) -> PerChain:
        L = squares.shape[1] // 2
        tails = self._power.like(squares) * torch.log1p(squares[:, :L] / self._spread.like(squares))
        of_biases = squares[:, L:] * self._bias_precision.like(squares)
        return 0.5 * (tails + of_biases).sum(1) + self._log_norm.like(squares)


def _sums(terms: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """Return the sums of terms (C, P) over the members (P, G) of each group, (C, G).

    The bits of a matrix product depend on its shape: rows are multiplied four at a time, however many there are.
    """
    C, P = terms.shape
    padded = torch.nn.functional.pad(terms, (0, 0, 0, -C % 4)) if C % 4 else terms
    blocks = padded.view(-1, 4, P)
    return bmm(blocks, members.expand(len(blocks), -1, -1)).view(-1, members.shape[1])[:C]
