"""The multilayer perceptron on flat parameters: the only module that knows their layout.

Each layer owns one block of theta that holds its weights and biases, so that a constant unit in the layer's input carries the
bias through the same matrix products. A hidden layer's block is row-major (n_in + 1, n_out), bias last; the output layer's is
(n_out, n_in + 1), because its outputs are (C, K, n), rows last: these orders need no transposed copies.

``forward`` and ``pullback`` are the seam behind which another gradient kernel can be slotted in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch

from sklearn_sgmcmc._typing import Outputs, Rows, Theta


class Activation(NamedTuple):
    """An elementwise function h(z) and its pullback: (dL/dh, z, h) -> dL/dz."""

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


relu_pullback = torch.ops.aten.threshold_backward.default

ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu, lambda d, z, h: relu_pullback(d, h, 0), 2.0**0.5),
    "tanh": Activation(torch.tanh, lambda d, z, h: d * (1.0 - h * h), 1.0),
    "logistic": Activation(sigmoid, lambda d, z, h: d * (h * (1.0 - h)), 1.0),
    "identity": Activation(lambda z: z, lambda d, z, h: d, 1.0),
    "silu": Activation(lambda z: z * sigmoid(z), _silu_pullback, 2.0**0.5),
    "gelu": Activation(lambda z: z * _normal_cdf(z), _gelu_pullback, 2.0**0.5),
}


class Tape(NamedTuple):
    """What ``pullback`` needs from ``forward``: the layers' blocks, their inputs with the constant unit, the pre-activations."""

    blocks: list[torch.Tensor]
    inputs: list[torch.Tensor]
    pre_activations: list[torch.Tensor]


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
        n_chains = theta.shape[0]
        parts = theta[:, : self.n_params].split_with_sizes(self._sizes, dim=1)
        return [part.view(n_chains, *shape) for part, shape in zip(parts, self._shapes, strict=True)]

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        shapes = [(n_in + 1, n_out) for n_in, n_out in pairwise(self.widths)]
        return [*shapes[:-1], shapes[-1][::-1]]

    @cached_property
    def _sizes(self) -> list[int]:
        return [rows * columns for rows, columns in self._shapes]

    def forward(self, theta: Theta, x: Rows) -> tuple[Outputs, Tape]:
        """Return the outputs (C, K, n) of inputs ``x`` (C, n, n_inputs + 1), whose last column is the constant 1."""
        function = ACTIVATIONS[self.activation].function
        blocks = self.layers(theta)
        inputs, pre_activations = [x], []
        for block in blocks[:-1]:
            z = bmm(inputs[-1], block)
            pre_activations.append(z)
            inputs.append(with_constant(function(z)))
        return bmm(blocks[-1], inputs[-1].transpose(1, 2)), Tape(blocks, inputs, pre_activations)

    def pullback(self, tape: Tape, d_outputs: Outputs) -> list[torch.Tensor]:
        """Return the gradient blocks, each (C, block size), for the derivative ``d_outputs`` (C, K, n) of a scalar per chain."""
        return [bmm(left, right).flatten(1) for left, right in reversed(list(self._factors(tape, d_outputs)))]

    def squared_pullback(self, tape: Tape, d_outputs: Outputs) -> list[torch.Tensor]:
        """Return, in blocks, the sum over rows of the squared derivative that each row alone would give."""
        pairs = reversed(list(self._factors(tape, d_outputs)))  # a row's gradient is an outer product: its square is one of squares
        return [bmm(left.square(), right.square()).flatten(1) for left, right in pairs]

    def _factors(self, tape: Tape, d_outputs: Outputs) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield, last layer first, the two matrices whose product over rows is the gradient of a layer's block."""
        pullback = ACTIVATIONS[self.activation].pullback
        blocks = tape.blocks
        yield d_outputs, tape.inputs[-1]
        delta, transposed = d_outputs.transpose(1, 2), blocks[-1]  # dL/d(layer's output), and what takes it to the layer's input
        for layer in range(len(blocks) - 1, 0, -1):
            z, h = tape.pre_activations[layer - 1], tape.inputs[layer][..., :-1]
            delta = pullback(bmm(delta, transposed[..., :-1]), z, h)
            yield tape.inputs[layer - 1].transpose(1, 2), delta
            transposed = blocks[layer - 1].transpose(1, 2)

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
