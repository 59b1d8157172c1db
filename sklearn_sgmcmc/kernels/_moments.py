"""``moments.c``: class probabilities, and means and variances over draws, in float64."""

from __future__ import annotations

import ctypes

import torch


class Moments:
    """The functions of ``moments.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._softmax, self._add_draws = library.softmax, library.add_draws
        for call in (self._softmax, self._add_draws):
            call.restype = None
        self._softmax.argtypes = [*(ctypes.c_long,) * 3, *(ctypes.c_void_p,) * 2]
        self._add_draws.argtypes = [*(ctypes.c_long,) * 3, *(ctypes.c_void_p,) * 3]

    def softmax(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the class probabilities of outputs (D, K, n), contiguous float64."""
        made = torch.empty_like(outputs)
        self._softmax(*outputs.shape, outputs.data_ptr(), made.data_ptr())
        return made

    def add_draws(self, count: int, values: torch.Tensor, mean: torch.Tensor, squares: torch.Tensor) -> None:
        """Add values (D, ...) to the means and summed squared deviations (...) of ``count`` draws; all contiguous float64."""
        self._add_draws(count, len(values), mean.numel(), values.data_ptr(), mean.data_ptr(), squares.data_ptr())


def agrees(kernel: Moments) -> bool:
    """Compare the kernel with torch on sizes that leave a remainder."""
    outputs = torch.randn(5, 3, 19, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = outputs.softmax(1)
    mean, squares = torch.zeros(2, 3, 19, dtype=torch.float64)
    kernel.add_draws(0, outputs[:2], mean, squares)
    kernel.add_draws(2, outputs[2:], mean, squares)
    pairs = ((kernel.softmax(outputs), expected), (mean, outputs.mean(0)), (squares, 5 * outputs.var(0, correction=0)))
    return all(torch.allclose(found, right, rtol=0, atol=1e-13) for found, right in pairs)
