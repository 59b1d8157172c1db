"""``network.c``: the outputs of multilayer perceptrons and the gradient of their log posterior, all chains in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise

import torch

ACTIVATIONS = ("relu", "tanh", "logistic", "identity", "silu", "gelu")
LIKELIHOODS = ("categorical", "fixed noise", "homoscedastic", "heteroscedastic")
MOST_LAYERS = 64
LARGEST_BLOCK = 2**19
"""Parameters of a layer beyond which torch's matrix products, which divide large matrices into pieces for the cache, are faster."""

TOO_LARGE = "no memory for one chain's pass through the network: use smaller hidden layers"


class Model(ctypes.Structure):
    """What C has to know of a network and its likelihood."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("activation", "likelihood", "n_layers", "n_targets")),
        ("widths", ctypes.c_long * (MOST_LAYERS + 1)),
        ("constants", ctypes.c_double * MOST_LAYERS),
    )

    @classmethod
    def of(
        cls,
        widths: tuple[int, ...],
        activation: str,
        likelihood: str = LIKELIHOODS[0],
        n_targets: int = 0,
        constants: Sequence[float] = (),
    ) -> Model | None:
        """Return the model if the kernel can and should compute it."""
        n_layers = len(widths) - 1
        largest = max((widths[layer] + 1) * widths[layer + 1] for layer in range(n_layers))
        if activation not in ACTIVATIONS or max(n_layers, len(constants)) > MOST_LAYERS or largest > LARGEST_BLOCK:
            return None
        model = cls(ACTIVATIONS.index(activation), LIKELIHOODS.index(likelihood), n_layers, n_targets)
        model.widths[: n_layers + 1] = widths
        model.constants[: len(constants)] = constants
        return model


class _Rows(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "x_end", "target")),
        *((name, ctypes.c_long) for name in ("x_chain", "x_row", "target_chain", "target_row")),
    )


class Rows:
    """Where inputs x (C, n, d + 1) and targets (C, n, columns) lie: read in place, whatever their strides over chains and rows.

    A table of rows that all chains share has C = 1 and stride 0, and is read by row numbers.
    """

    def __init__(self, x: torch.Tensor, target: torch.Tensor) -> None:
        x, target = (rows if rows.stride(2) == 1 else rows.contiguous() for rows in (x, target.to(x.dtype)))
        last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        self.tensors, self.dtype = (x, target), x.dtype  # kept alive
        chains = (rows.stride(0) if len(rows) > 1 else 0 for rows in self.tensors)
        strides = [stride for rows, chain in zip(self.tensors, chains, strict=True) for stride in (chain, rows.stride(1))]
        self.place = _Rows(x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size(), target.data_ptr(), *strides)
        self.address = ctypes.addressof(self.place)


class Network:
    """The functions of ``network.c`` for one dtype."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._outputs, self._gradient, self._hierarchical = library.outputs, library.gradient, library.hierarchical
        whole, pointer = ctypes.c_long, ctypes.c_void_p
        self._outputs.argtypes = [pointer, whole, whole, pointer, whole, pointer, pointer]
        self._hierarchical.argtypes = [whole, pointer, whole, whole, pointer, pointer, whole, pointer, whole, pointer, pointer]
        self._hierarchical.restype = None
        self._gradient.argtypes = [
            *(pointer, whole, whole, pointer, whole, pointer, pointer, whole, pointer, whole, whole),
            *(pointer, whole, whole, pointer, pointer, whole),
        ]
        self.lanes = int(library.lanes())

    def outputs(self, model: Model, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs (C, K, n) of inputs x (C, n, d + 1) with their constant unit."""
        rows, n_rows = Rows(x, x), x.shape[1]
        made = theta.new_empty(len(theta), model.widths[model.n_layers], n_rows)
        failed = self._outputs(
            ctypes.addressof(model), len(theta), n_rows, theta.data_ptr(), theta.stride(0), rows.address, made.data_ptr()
        )
        if failed:
            raise MemoryError(TOO_LARGE)
        return made

    def gradient(
        self,
        model: Model,
        theta: torch.Tensor,
        rows: Rows,
        weight: torch.Tensor,
        *,
        index: torch.Tensor | None = None,
        precision: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the gradient of sum -weight log f + precision theta^2 / 2, shaped like ``theta`` (C, P).

        weight is (C, n); index (C, n), contiguous int32 or int64, has the numbers of the rows if they come from a table; precision,
        for the network's parameters alone, broadcasts against (C, P). ``values`` (C,), float64, takes each chain's -sum weight log
        f if given. The priors of the likelihood's parameters are not counted.
        """
        n_chains, n_rows = weight.shape
        if n_chains != theta.shape[0] or not theta.dtype == weight.dtype == rows.dtype:
            raise ValueError(f"{len(theta)} chains of {theta.dtype} do not fit rows of {n_chains} chains in {rows.dtype}.")
        made = torch.empty_like(theta)
        prior_at, prior_chain, prior_param = None, 0, 0
        if precision is not None:
            prior_at, (prior_chain, prior_param) = precision.data_ptr(), precision.stride()
            if precision.shape[0] == 1:
                prior_chain = 0
            if precision.shape[1] == 1:
                prior_param = 0
        weight_chain, weight_row = weight.stride()
        failed = self._gradient(
            ctypes.addressof(model),
            n_chains,
            n_rows,
            theta.data_ptr(),
            theta.stride(0),
            rows.address,
            None if index is None else index.data_ptr(),
            0 if index is None else index.element_size(),
            weight.data_ptr(),
            weight_chain,
            weight_row,
            prior_at,
            prior_chain,
            prior_param,
            None if values is None else values.data_ptr(),
            made.data_ptr(),
            made.stride(0),
        )
        if failed:
            raise MemoryError(TOO_LARGE)
        return made

    def hierarchical(
        self, theta: torch.Tensor, starts: torch.Tensor, group: torch.Tensor, laws: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return -log p (C,), float64, and the precision of each parameter, (C, P), of a hierarchical prior.

        Run i of parameters, starts[i] up to starts[i + 1], belongs to group[i]; both are int64. The contiguous laws, (C, 3 L + 1)
        or (1, 3 L + 1) float64, are df s^2, df + P_l and the precision of the biases of each of L layers, and the log of p's norm.
        """
        if len(laws) not in (1, len(theta)):
            raise ValueError(f"{len(theta)} chains of parameters do not fit the laws of {len(laws)}.")
        value = torch.empty(len(theta), dtype=torch.float64, device="cpu")
        precision = torch.empty(theta.shape, dtype=theta.dtype, device="cpu")
        runs = len(group), starts.data_ptr(), group.data_ptr(), laws.shape[1] // 3
        own = laws.shape[1] if len(laws) > 1 else 0
        made = value.data_ptr(), precision.data_ptr()
        self._hierarchical(len(theta), theta.data_ptr(), theta.stride(0), *runs, laws.data_ptr(), own, *made)
        return value, precision


def agrees(kernel: Network, dtype: torch.dtype) -> bool:
    """Compare the kernel with automatic differentiation on networks whose sizes leave a remainder everywhere."""
    generator = torch.Generator().manual_seed(0)
    C, n, widths = 2, 7, (5, 19, 3)
    P = sum((n_in + 1) * n_out for n_in, n_out in pairwise(widths))
    theta, x = (torch.randn(shape, generator=generator, dtype=dtype) for shape in ((C, P), (C, n, widths[0] + 1)))
    x[..., -1] = 1.0
    target = torch.eye(3, dtype=dtype)[torch.randint(3, (C, n), generator=generator)]
    weight, precision = torch.rand(C, n, generator=generator, dtype=dtype), torch.rand(1, P, generator=generator, dtype=dtype)
    model = Model.of(widths, "tanh", "categorical", 3)
    assert model is not None
    values = torch.empty(C, dtype=torch.float64)
    found = kernel.gradient(model, theta, Rows(x, target), weight, precision=precision, values=values)
    with torch.enable_grad(), torch.inference_mode(False):
        leaf = theta.clone().requires_grad_()
        hidden, last = leaf.split_with_sizes([6 * 19, 3 * 20], dim=1)
        h = torch.tanh(x.clone() @ hidden.view(C, 6, 19))
        z = last.view(C, 3, 20) @ torch.nn.functional.pad(h, (0, 1), value=1.0).mT
        value = -(z.log_softmax(1).mT * target.clone()).sum(2).mul(weight.clone()).sum(1)
        expected = torch.autograd.grad(value.sum() + 0.5 * (precision.clone() * leaf.square()).sum(), leaf)[0]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    pairs = ((found, expected), (values, value.detach().double()), (kernel.outputs(model, theta, x), z.detach()))
    return all(torch.allclose(one, other, rtol=0, atol=tolerance) for one, other in pairs)
