"""``velocity.c``: kicks of unit velocities, for one dtype."""

from __future__ import annotations

import ctypes

import torch


class Velocity:
    """The functions of ``velocity.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._kick, self._unit = library.kick, library.unit
        whole, pointer = ctypes.c_long, ctypes.c_void_p
        self._kick.argtypes = [whole, whole, pointer, whole, pointer, whole, pointer, pointer, pointer]
        self._unit.argtypes = [whole, whole, pointer, pointer]
        self._kick.restype = self._unit.restype = None

    def kick(self, u: torch.Tensor, gradient: torch.Tensor, time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return u (C, P) after a kick by the gradient over each chain's time at temperature 1, and the change of energy (C, 1).

        Time is float64 and contiguous; P >= 2.
        """
        gradient = gradient if gradient.stride(1) == 1 else gradient.contiguous()
        made, change = torch.empty_like(u), torch.empty(len(u), 1, dtype=torch.float64, device="cpu")
        whence = (u.data_ptr(), u.stride(0), gradient.data_ptr(), gradient.stride(0), time.data_ptr())
        self._kick(*u.shape, *whence, made.data_ptr(), change.data_ptr())
        return made, change

    def unit(self, vector: torch.Tensor) -> torch.Tensor:
        """Return each row of a contiguous (C, P) divided by its length."""
        made = torch.empty_like(vector)
        self._unit(*vector.shape, vector.data_ptr(), made.data_ptr())
        return made


def agrees(kernel: Velocity, dtype: torch.dtype) -> bool:
    """Compare the kernel with exact cases at a size that leaves a remainder: no force, a strong one, and a right angle."""
    C, P = 3, 37
    u, gradient = torch.zeros(2, C, P, dtype=dtype)
    u[:, 0], gradient[1, 35], gradient[2, 36] = 1.0, -1e6, 2.0
    time = torch.tensor([[1.0], [1.0], [P - 1.0]], dtype=torch.float64)  # d = 0, 1e6 / 36 and 2
    found, change = kernel.kick(u, gradient, time)
    two = torch.tensor(2.0, dtype=torch.float64)
    expected = u.clone()
    expected[1, 0], expected[1, 35] = 0.0, 1.0
    expected[2, 0], expected[2, 36] = 1.0 / two.cosh(), -two.tanh()
    right = torch.stack([0.0 * two, 1e6 - (P - 1) * two.log(), (P - 1) * two.cosh().log()])[:, None]
    pairs = ((found, expected), (change, right), (kernel.unit(3.0 * found), found))
    return all(torch.allclose(one, other, rtol=1e-14, atol=1e-6 if dtype == torch.float32 else 1e-14) for one, other in pairs)
