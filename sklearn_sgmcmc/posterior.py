"""U(theta) = -log posterior and its gradient on a minibatch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Coefficient, Outputs, PerChain, Theta
from sklearn_sgmcmc.batches import Batch, Minibatch, RowSource
from sklearn_sgmcmc.likelihoods import Likelihood
from sklearn_sgmcmc.network import MLP, Tape, compiled_network
from sklearn_sgmcmc.priors import Density, Prior, hessian_product

NONE_LEFT: Iterator[Minibatch] = iter(())
CHUNK_ROWS, CHUNK_ELEMENTS = 1024, 2**20
"""Most rows, and numbers of a layer or of parameters, that are held at once where U is taken over all rows."""


@dataclass(frozen=True)
class Posterior:
    """A network, what its outputs mean, and a prior: together a potential over flat parameters (C, P).

    theta holds the network's parameters first, then the likelihood's. ``n_rows`` counts the training rows R, ``n_data`` is their
    total weight N; each is a number or a (C, 1) tensor.
    """

    network: MLP
    likelihood: Likelihood
    prior: Prior
    n_rows: Coefficient
    n_data: Coefficient
    _last_weight: ClassVar[tuple[torch.Tensor, torch.Tensor] | None] = None  # of an instance, once it has bound a batch

    @property
    def n_params(self) -> int:
        """P."""
        return self.network.n_params + self.likelihood.n_params

    @cached_property
    def density(self) -> Density:
        """The prior placed on the network's parameters."""
        return self.prior.place(self.network.layout())

    @cached_property
    def compiled(self) -> kernels.Model | None:
        """Network and likelihood as the kernel sees them; None if torch is to compute the gradient."""
        of_likelihood = self.likelihood.compiled
        return None if of_likelihood is None else kernels.Model.of(self.network.widths, self.network.activation, *of_likelihood)

    def bind(self, batch: Minibatch, following: Iterator[Minibatch] = NONE_LEFT) -> MinibatchPotential:
        """Return the potential seen through a minibatch of n of the R rows: here alone stands R/n (N/n at unit weights)."""
        last = self._last_weight
        if last is None or last[0] is not batch.weight:  # unit weights are the same tensor in every batch
            share = self.n_rows / batch.weight.shape[1]
            share = share.to(batch.weight.dtype) if isinstance(share, torch.Tensor) else share
            last = (batch.weight, batch.weight * share)
            object.__setattr__(self, "_last_weight", last)
        return MinibatchPotential(self, batch.weighted(last[1]), following)

    def threshold(self) -> torch.Tensor | None:
        """Return the (P,) absolute values below which a parameter belongs to the prior's spike; None if it has no spike."""
        of_network = self.density.threshold
        if of_network is None:
            return None
        return torch.cat([of_network[0], torch.zeros(self.likelihood.n_params, dtype=torch.float64)])

    def initial_scale(self) -> torch.Tensor:
        """Return the (P,) standard deviations of random initial parameters; the likelihood's start at 0."""
        network = self.network.initial_scale(self.density.initial_scale)
        return torch.cat([network, torch.zeros(self.likelihood.n_params, dtype=torch.float64)])

    def split(self, theta: Theta) -> tuple[Theta, Theta]:
        """Return the network's and the likelihood's parameters."""
        n, m = self.network.n_params, self.likelihood.n_params
        return (theta, theta.narrow(1, n, 0)) if m == 0 else (theta.narrow(1, 0, n), theta.narrow(1, n, m))

    def prior_value(self, theta: Theta) -> PerChain:
        """Return -log prior of all parameters, shape (C,), float64."""
        weights, extra = self.split(theta)
        return self.density.value(weights) + self.likelihood.prior_value(extra)

    def full_value(self, theta: Theta, source: RowSource) -> PerChain:
        """Return U over all rows of ``source``, shape (C,), float64; each chunk of rows is taken once for all chains."""
        widest = max(self.network.widths)
        n_rows = max(1, min(CHUNK_ROWS, source.n_rows, CHUNK_ELEMENTS // widest))
        groups = torch.split(theta, max(1, CHUNK_ELEMENTS // max(n_rows * widest, self.n_params)))
        total = torch.cat([self.prior_value(some) for some in groups])
        for start in range(0, source.n_rows, n_rows):
            index = torch.arange(start, min(start + n_rows, source.n_rows), device=theta.device)
            batch = Batch(*source.take(index[None]))
            total += torch.cat([MinibatchPotential(self, batch.expanded(len(some))).data_value(some) for some in groups])
        return total


@dataclass(frozen=True)
class MinibatchPotential:
    """A posterior with a minibatch bound, whose weights already carry R/n; ``following`` are the minibatches after it."""

    posterior: Posterior
    batch: Minibatch
    following: Iterator[Minibatch] = NONE_LEFT

    @property
    def n_data(self) -> Coefficient:
        """Total sample weight N."""
        return self.posterior.n_data

    def grad(self, theta: Theta) -> Theta:
        """Return the stochastic gradient of U, shape (C, P)."""
        kernel = self._kernel(theta)
        if kernel is not None:
            return self._by_kernel(kernel, theta, self.posterior.density.precision(self.posterior.split(theta)[0]))
        return self._pull(theta, *self.posterior.network.forward(theta, self.batch.x))

    def value(self, theta: Theta) -> PerChain:
        """Return U, shape (C,), summed in float64."""
        return self.data_value(theta) + self.posterior.prior_value(theta)

    def value_and_grad(self, theta: Theta) -> tuple[PerChain, Theta]:
        """Return both, from one pass through the network."""
        posterior, kernel = self.posterior, self._kernel(theta)
        if kernel is None:
            outputs, tape = posterior.network.forward(theta, self.batch.x)
            return self._data_value(theta, outputs) + posterior.prior_value(theta), self._pull(theta, outputs, tape)
        weights, extra = posterior.split(theta)
        of_prior, precision = posterior.density.value_and_precision(weights)
        of_data = torch.empty(len(theta), dtype=torch.float64)
        gradient = self._by_kernel(kernel, theta, precision, of_data)
        if extra.shape[1] > 0:
            of_prior = of_prior + posterior.likelihood.prior_value(extra)
        return of_data + of_prior, gradient

    def data_value(self, theta: Theta) -> PerChain:
        """Return -sum weight log f over the minibatch, shape (C,), summed in float64."""
        return self._data_value(theta, self.posterior.network.outputs(theta, self.batch.x))

    def _data_value(self, theta: Theta, outputs: Outputs) -> PerChain:
        _, extra = self.posterior.split(theta)
        log_density = self.posterior.likelihood.log_density(outputs, extra, self.batch.target)
        return -(log_density.double() * self.batch.weight).sum(1)

    def _pull(self, theta: Theta, outputs: Outputs, tape: Tape) -> Theta:
        """Return the gradient of U from a pass through the network: the likelihood's, pulled back, plus the priors'."""
        posterior, batch = self.posterior, self.batch
        weights, extra = posterior.split(theta)
        d_outputs, d_extra = posterior.likelihood.gradient(outputs, extra, batch.target, batch.weight)
        gradient = torch.empty(theta.shape, dtype=theta.dtype, device=theta.device)
        of_network, of_extra = posterior.split(gradient)
        posterior.network.pullback(tape, d_outputs, gradient)
        posterior.density.add_grad(of_network, weights)
        if posterior.likelihood.n_params > 0:
            of_extra.copy_(d_extra).add_(posterior.likelihood.prior_grad(extra))
        return gradient

    def _kernel(self, theta: Theta) -> kernels.Network | None:
        """Return the kernel if it can and should compute the gradient."""
        return None if self.posterior.compiled is None else compiled_network(theta)

    @cached_property
    def _placed(self) -> tuple[kernels.Rows, torch.Tensor | None]:
        return self.batch.placed()

    def _by_kernel(
        self, kernel: kernels.Network, theta: Theta, precision: torch.Tensor | None, values: PerChain | None = None
    ) -> Theta:
        """Return what ``_pull`` does, given the prior's precision; write the minibatch's part of U into ``values``."""
        posterior = self.posterior
        model, n_extra = posterior.compiled, posterior.likelihood.n_params
        assert model is not None
        rows, index = self._placed
        gradient = kernel.gradient(model, theta, rows, self.batch.weight, index=index, precision=precision, values=values)
        if precision is None:
            posterior.density.add_grad(posterior.split(gradient)[0], posterior.split(theta)[0])
        if n_extra > 0:
            posterior.split(gradient)[1].add_(posterior.likelihood.prior_grad(posterior.split(theta)[1]))
        return gradient

    def fisher(self, theta: Theta) -> Theta:
        """Return the diagonal of the empirical Fisher information, sum over rows of weight (d log f / d theta)^2, shape (C, P).

        The likelihood's own parameters take its expectation under the model.
        """
        posterior, batch = self.posterior, self.batch
        extra = posterior.split(theta)[1]
        outputs, tape = posterior.network.forward(theta, batch.x)
        d_outputs, _ = posterior.likelihood.gradient(outputs, extra, batch.target, batch.weight.sqrt())
        blocks = posterior.network.squared_pullback(tape, d_outputs)
        return torch.cat([*blocks, posterior.likelihood.fisher(extra, batch.weight)], dim=1)

    def fresh(self) -> MinibatchPotential:
        """Return the same potential on the next minibatch."""
        return self.posterior.bind(next(self.following), self.following)

    def autograd(self, theta: Theta) -> Theta:
        """Return the gradient by automatic differentiation: the reference for ``grad``."""
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            return torch.autograd.grad(self.value(leaf).sum(), leaf)[0]

    def hvp(self, theta: Theta, vectors: torch.Tensor) -> torch.Tensor:
        """Return the Hessian of U at ``theta`` times several vectors (C, F, P), as one batch of F C chains."""
        C, F, P = vectors.shape
        repeats = max(F, 2)  # see network.bmm: for one chain automatic differentiation would take gemv where more take gemm
        many = MinibatchPotential(self.posterior, Batch(*(t.repeat(repeats, *(1,) * (t.ndim - 1)) for t in self.batch)))
        directions = vectors.expand(C, repeats, P) if F == 1 else vectors
        product = hessian_product(many.data_value, theta.repeat(repeats, 1), directions.transpose(0, 1).reshape(-1, P))
        of_data = product.view(repeats, C, P).transpose(0, 1)[:, :F]
        of_weights, of_extra = vectors.split_with_sizes(
            [self.posterior.network.n_params, self.posterior.likelihood.n_params], dim=2
        )
        weights, extra = self.posterior.split(theta)
        parts = [self.posterior.density.hvp(weights, of_weights)]
        if self.posterior.likelihood.n_params > 0:
            diagonal = hessian_product(self.posterior.likelihood.prior_value, extra, torch.ones_like(extra))
            parts.append(diagonal[:, None] * of_extra)
        return of_data + torch.cat(parts, dim=2)
