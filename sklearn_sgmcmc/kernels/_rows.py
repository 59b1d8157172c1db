"""``rows.c``: rows of a large table, fetched by number, scaled in float64 and cast, a constant column after them."""

from __future__ import annotations

import ctypes

import torch

FLOATS = (torch.float32, torch.float64)


class ScaledRows:
    """The function of ``rows.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library.scaled_rows
        whole, pointer = ctypes.c_long, ctypes.c_void_p
        self._call.restype = None
        self._call.argtypes = [*(whole, whole, pointer, whole, pointer, whole, whole), *(pointer, pointer, whole, pointer, whole)]

    def write(self, table: torch.Tensor, index: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> None:
        """Write (table[index] - mean) / scale and a constant 1 into the first columns of ``out``, whose rows are contiguous.

        table (N, d) and out are float32 or float64; index is int64, mean and scale are float64, all three contiguous.
        """
        n_columns = table.shape[1]
        assert {table.dtype, out.dtype} <= set(FLOATS)
        self._call(
            *(len(index), n_columns, index.data_ptr()),
            *(int(table.dtype == torch.float32), table.data_ptr(), *table.stride()),
            *(mean.data_ptr(), scale.data_ptr(), int(out.dtype == torch.float32), out.data_ptr(), out.stride(0)),
        )


def agrees(kernel: ScaledRows) -> bool:
    """Compare the kernel with torch, bit for bit, on a number of columns that leaves a remainder."""
    generator = torch.Generator().manual_seed(0)
    table, scale = torch.randn(9, 21, generator=generator, dtype=torch.float64), 1 + torch.rand(21, generator=generator).double()
    mean, index = table[0].clone(), torch.tensor([8, 0, 3, 3])
    for given in (table, table.float()):
        for dtype in FLOATS:
            out = torch.empty(4, 23, dtype=dtype)
            kernel.write(given, index, mean, scale, out)
            expected = ((given[index].double() - mean) / scale).to(dtype)
            if not (torch.equal(out[:, :21], expected) and bool((out[:, 21] == 1).all())):
                return False
    return True
