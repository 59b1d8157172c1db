"""The multilayer perceptron on flat parameters: the only module that knows their layout.

Each layer owns one block of theta that holds its weights and biases, so that a constant unit in the layer's input carries the
bias through the same matrix products. A hidden layer's block is row-major (n_in + 1, n_out), bias last; the output layer's is
(n_out, n_in + 1), because its outputs are (C, K, n), rows last: these orders need no transposed copies.

``forward`` and ``pullback`` say what is computed, by torch's matrix products. For all but wide networks on a CPU ``kernels``
computes the same faster: ``outputs`` chooses, and ``posterior`` does for gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch

from sklearn_sgmcmc import kernels
from sklearn_sgmcmc._typing import Outputs, Rows, Theta


class Activation(NamedTuple):
    """An elementwise function h(z), which may overwrite z if the pullback does not need it, and its pullback.

    The pullback is (dL/dh, z, h) -> dL/dz.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    pullback: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    gain: float
    """Weights drawn with standard deviation gain / sqrt(n_in) keep the scale of the signal."""


def sigmoid(z: torch.Tensor) -> torch.Tensor:
    """Return 1 / (1 + exp(-z)) by way of tanh.

    torch's own sigmoid, silu, softplus and gelu round the last few numbers of a tensor otherwise than the rest, so that a chain's
    bits would depend on how many chains are computed together; tanh, exp, log1p and erf do not.
    """
    return 0.5 * (1.0 + torch.tanh(0.5 * z))


def softplus(z: torch.Tensor) -> torch.Tensor:
    """Return log(1 + exp(z))."""
    return torch.relu(z) + torch.log1p(torch.exp(-z.abs()))


def _normal_cdf(z: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1.0 + torch.erf(z * 0.7071067811865476))  # 1 / sqrt(2)


def _silu_pullback(d: torch.Tensor, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    share = sigmoid(z)
    return d * (share + h * (1.0 - share))


def _gelu_pullback(d: torch.Tensor, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return d * (_normal_cdf(z) + z * torch.exp(-0.5 * z * z) * 0.3989422804014327)  # 1 / sqrt(2 pi)


_relu_pullback = torch.ops.aten.threshold_backward.default
_tanh_pullback = torch.ops.aten.tanh_backward.default
_logistic_pullback = torch.ops.aten.sigmoid_backward.default

ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu_, lambda d, z, h: _relu_pullback(d, h, 0), 2.0**0.5),
    "tanh": Activation(torch.tanh_, lambda d, z, h: _tanh_pullback(d, h), 1.0),
    "logistic": Activation(sigmoid, lambda d, z, h: _logistic_pullback(d, h), 1.0),
    "identity": Activation(lambda z: z, lambda d, z, h: d, 1.0),
    "silu": Activation(lambda z: z * sigmoid(z), _silu_pullback, 2.0**0.5),
    "gelu": Activation(lambda z: z * _normal_cdf(z), _gelu_pullback, 2.0**0.5),
}


class Tape(NamedTuple):
    """What ``pullback`` needs from ``forward``.

    theta : the parameters. inputs : each layer's inputs with the constant unit.
    pre_activations, hidden : z and h of each hidden layer, (C, n, width).
    """

    theta: Theta
    inputs: list[torch.Tensor]
    pre_activations: list[torch.Tensor]
    hidden: list[torch.Tensor]


class Layout(NamedTuple):
    """What each of a network's parameters is, in the order of theta: tensors of shape (n_params,), and the number of layers.

    layer : int64, the number of the parameter's layer, from 0; the output layer is the last.
    is_weight : bool, False for a bias.
    n_in : float64, the number of inputs of its layer, without the constant unit.
    """

    layer: torch.Tensor
    is_weight: torch.Tensor
    n_in: torch.Tensor
    n_layers: int


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron with ``widths`` = (n_inputs, *hidden, n_outputs) and one activation between its layers."""

    widths: tuple[int, ...]
    activation: str

    @cached_property
    def n_params(self) -> int:
        """Number of weights and biases."""
        return sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.widths))

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return self.widths[-1]

    def layers(self, theta: Theta) -> list[torch.Tensor]:
        """Return each layer's block, (C, n_in + 1, n_out) or (C, n_out, n_in + 1), as a view into ``theta`` (C, >= n_params)."""
        n_chains, n_all = theta.shape
        parts = theta.split_with_sizes([*self._sizes, n_all - self.n_params], dim=1)  # the last part is the likelihood's
        return [part.view(n_chains, rows, columns) for part, (rows, columns) in zip(parts[:-1], self._shapes, strict=True)]

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        shapes = [(n_in + 1, n_out) for n_in, n_out in pairwise(self.widths)]
        return [*shapes[:-1], shapes[-1][::-1]]

    @cached_property
    def _sizes(self) -> list[int]:
        return [rows * columns for rows, columns in self._shapes]

    @cached_property
    def _compiled(self) -> kernels.Model | None:
        """The network as the kernel sees it; None if torch is to compute it."""
        return kernels.Model.of(self.widths, self.activation)

    def outputs(self, theta: Theta, x: Rows) -> Outputs:
        """Return the outputs (C, K, n) of inputs ``x`` (C, n, n_inputs + 1), whose last column is the constant 1."""
        model = self._compiled
        kernel = None if model is None else compiled_network(theta)
        if kernel is None or x.requires_grad:
            return self.forward(theta, x)[0]
        assert model is not None
        return kernel.outputs(model, theta, x)

    def forward(self, theta: Theta, x: Rows) -> tuple[Outputs, Tape]:
        """Return ``outputs`` by torch, and what their pullback needs."""
        function = ACTIVATIONS[self.activation].function
        one = x.narrow(2, self.widths[0], 1)
        tape = Tape(theta, [x], [], [])
        *of_hidden, of_output = self.layers(theta)
        for block in of_hidden:
            z = bmm(tape.inputs[-1], block)
            h = function(z)
            tape.pre_activations.append(z)
            tape.hidden.append(h)
            tape.inputs.append(torch.cat([h, one], dim=2))
        return bmm(of_output, tape.inputs[-1].transpose(1, 2)), tape

    def pullback(self, tape: Tape, d_outputs: Outputs, gradient: Theta) -> None:
        """Write the derivative by the network's parameters into ``gradient``, shaped like the theta of ``forward``.

        ``d_outputs`` (C, K, n) is the derivative of a scalar per chain by the outputs.
        """
        blocks = [bmm(left, right).view(len(gradient), -1) for left, right in self._factors(tape, d_outputs)]
        torch.cat(blocks[::-1], dim=1, out=gradient.narrow(1, 0, self.n_params))

    def squared_pullback(self, tape: Tape, d_outputs: Outputs) -> list[torch.Tensor]:
        """Return, in blocks, the sum over rows of the squared derivative that each row alone would give."""
        pairs = self._factors(tape, d_outputs)  # a row's gradient is an outer product: its square is one of squares
        return [bmm(left.square(), right.square()).flatten(1) for left, right in pairs][::-1]

    def _factors(self, tape: Tape, d_outputs: Outputs) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield, last layer first, the two matrices whose product over rows is the gradient of a layer's block."""
        pullback = ACTIVATIONS[self.activation].pullback
        blocks = self.layers(tape.theta)
        inputs, hidden = tape.inputs, tape.hidden
        yield d_outputs, inputs[-1]
        delta, back = d_outputs.transpose(1, 2), blocks[-1]  # dL/d(layer's output), and what takes it to the layer's input
        for layer in range(len(hidden) - 1, -1, -1):
            z, h = tape.pre_activations[layer], hidden[layer]
            delta = pullback(bmm(delta, back.narrow(2, 0, h.shape[2])), z, h)
            yield inputs[layer].transpose(1, 2), delta
            back = blocks[layer].transpose(1, 2)

    def layout(self) -> Layout:
        """Return what each parameter is: made anew at every call, so that a stored network stays small."""
        sizes = [rows * columns for rows, columns in self._shapes]
        masks = [torch.ones(shape, dtype=torch.bool) for shape in self._shapes]
        for mask in masks[:-1]:
            mask[-1] = False
        masks[-1][:, -1] = False
        repeats = torch.tensor(sizes)
        return Layout(
            layer=torch.arange(len(sizes)).repeat_interleave(repeats),
            is_weight=torch.cat([mask.flatten() for mask in masks]),
            n_in=torch.tensor(self.widths[:-1], dtype=torch.float64).repeat_interleave(repeats),
            n_layers=len(sizes),
        )

    def initial_scale(self, prior_scale: torch.Tensor) -> torch.Tensor:
        """Return the (n_params,) standard deviations of random initial weights, at most ``prior_scale``; biases start at 0."""
        layout = self.layout()
        scale = torch.minimum(ACTIVATIONS[self.activation].gain / layout.n_in.sqrt(), prior_scale)
        return torch.where(layout.is_weight, scale, 0.0)

    def widen_outputs(self, theta: Theta, biases: torch.Tensor) -> Theta:
        """Return parameters of the same network with more outputs: zero weights and ``biases`` (C, n_new) for the new ones."""
        *hidden, last = self.layers(theta)
        weights = last.new_zeros(len(theta), biases.shape[1], last.shape[2] - 1)
        new = torch.cat([weights, biases.unsqueeze(2)], dim=2)
        return torch.cat([block.flatten(1) for block in [*hidden, torch.cat([last, new], dim=1)]], dim=1)


def compiled_network(theta: Theta) -> kernels.Network | None:
    """Return the kernel for parameters like these: on a CPU, without automatic differentiation, each chain's side by side."""
    return kernels.network(theta.dtype) if theta.is_cpu and not theta.requires_grad and theta.stride(1) == 1 else None


def with_constant(x: torch.Tensor) -> torch.Tensor:
    """Return rows with the constant unit appended as last column."""
    return torch.nn.functional.pad(x, (0, 1), value=1.0)


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batched matrix product whose bits for one chain do not depend on how many chains are computed together.

    A batch of one with a vector result would take another kernel (gemv) than larger batches: it is computed twice instead.
    """
    if len(a) == 1 and 1 in (a.shape[1], b.shape[2]):
        return torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1))[:1]
    return torch.bmm(a, b)
