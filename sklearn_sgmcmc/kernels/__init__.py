"""A compiled kernel for the layers of small networks on a CPU, where calling torch costs more than computing.

It is compiled from ``affine.c`` by the machine's own C compiler when it is first needed, kept in the user's cache directory, and
compared with torch before it is used. Without a compiler, or with the environment variable SKLEARN_SGMCMC_COMPILE=0, torch does
the same work more slowly. ``status()`` says which is the case.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

SWITCH = "SKLEARN_SGMCMC_COMPILE"
SOURCE = Path(__file__).with_name("affine.c")
REALS = {torch.float32: "float", torch.float64: "double"}
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC")
LONGEST_COMPILATION = 60.0
"""Seconds."""


class Affine:
    """The two functions of ``affine.c`` for one dtype."""

    def __init__(self, library: ctypes.CDLL) -> None:
        whole, pointer, flag = ctypes.c_long, ctypes.c_void_p, ctypes.c_int
        self.lanes = int(library.lanes())
        self._forward, self._pullback = library.affine, library.affine_pullback
        self._forward.argtypes = [*[whole] * 4, flag, flag, pointer, whole, pointer, whole, whole, pointer]
        self._pullback.argtypes = [*[whole] * 4, flag, pointer, whole, pointer, whole, whole, *[pointer] * 3, whole, pointer]

    def padded(self, width: int) -> int:
        """Return the length of a hidden layer's rows: ``width``, rounded up to whole vectors."""
        return -(-width // self.lanes) * self.lanes

    def forward(
        self, theta: torch.Tensor, start: int, x: torch.Tensor, n_in: int, n_out: int, *, last: bool, relu: bool
    ) -> torch.Tensor:
        """Return the outputs of the layer whose block starts at ``theta[:, start]``.

        theta (C, >= start + (n_in + 1) n_out) and x (C, n, >= n_in) have unit stride in their last dimension. The outputs are
        (C, n, padded n_out), zeros beyond n_out, through a relu if asked; or (C, n_out, n) of the ``last`` layer.
        """
        C, n, _ = x.shape
        z = theta.new_empty((C, n_out, n) if last else (C, n, self.padded(n_out)))
        block = theta.data_ptr() + start * theta.element_size()
        strides = x.stride()
        failed = self._forward(
            C, n, n_in, n_out, last, relu, block, theta.stride(0), x.data_ptr(), strides[0], strides[1], z.data_ptr()
        )
        if failed:
            raise MemoryError(f"no memory for a layer of {n_in} inputs and {n_out} outputs")
        return z

    def pullback(
        self,
        theta: torch.Tensor,
        start: int,
        x: torch.Tensor,
        n_in: int,
        n_out: int,
        dz: torch.Tensor,
        gradient: torch.Tensor,
        *,
        last: bool,
        h: torch.Tensor | None,
        with_dx: bool,
    ) -> torch.Tensor | None:
        """Write the layer's gradient block into ``gradient``, shaped like theta, and return that by its inputs if asked.

        dz, contiguous, is shaped like the outputs and overwritten. ``h`` are the outputs of a relu: dz counts where they are > 0.
        """
        C, n, _ = x.shape
        dx = theta.new_empty(C, n, self.padded(n_in)) if with_dx else None
        offset = start * theta.element_size()
        strides = x.stride()
        failed = self._pullback(
            *(C, n, n_in, n_out, last, theta.data_ptr() + offset, theta.stride(0), x.data_ptr(), strides[0], strides[1]),
            *(dz.data_ptr(), None if h is None else h.data_ptr(), gradient.data_ptr() + offset, gradient.stride(0)),
            None if dx is None else dx.data_ptr(),
        )
        if failed:
            raise MemoryError(f"no memory for the pullback of a layer of {n_in} inputs and {n_out} outputs")
        return dx


@lru_cache(maxsize=1)
def status() -> str:
    """Return in a sentence whether the compiled kernel is used here, and why not if it is not.

    Returns
    -------
    str
        The same sentence at every call of a process.

    Examples
    --------
    >>> from sklearn_sgmcmc import kernels
    >>> kernels.status().endswith(".")
    True
    """
    return _load(torch.float32)[1]


@lru_cache(maxsize=len(REALS))
def affine(dtype: torch.dtype) -> Affine | None:
    """Return the compiled functions for float32 or float64; None where there are none."""
    return _load(dtype)[0] if dtype in REALS else None


@lru_cache(maxsize=len(REALS))
def _load(dtype: torch.dtype) -> tuple[Affine | None, str]:
    if os.environ.get(SWITCH, "1") == "0":
        return None, f"torch computes the layers: {SWITCH}=0."
    try:
        kernel = Affine(ctypes.CDLL(str(_library(REALS[dtype]))))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        return None, f"torch computes the layers: no kernel could be compiled ({error})."
    if not _agrees(kernel, dtype):
        return None, "torch computes the layers: the compiled kernel gave other numbers than torch."
    return kernel, f"A compiled kernel computes the layers of small networks; vectors of {kernel.lanes} numbers in float32."


def _library(real: str) -> Path:
    """Return the shared library for C's type ``real``, compiled if it is not in the cache."""
    compiler = next(
        (found for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None
    )
    if compiler is None:
        raise OSError("no C compiler was found")
    source = SOURCE.read_bytes()
    key = hashlib.sha256(b"\0".join([source, compiler.encode(), " ".join(FLAGS).encode(), _processor().encode()])).hexdigest()[:16]
    folder = _cache()
    library = folder / f"affine-{real}-{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:  # another process may be compiling the same: the rename is atomic
            made = Path(aside) / library.name
            command = [compiler, *FLAGS, f"-DREAL={real}", str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_COMPILATION)
            made.replace(library)
    return library


def _cache() -> Path:
    """Return a folder of this user alone for compiled files."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    folder = Path(base) / "sklearn_sgmcmc"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="sklearn_sgmcmc-"))


def _processor() -> str:
    """Return what tells processors apart: code for one may not run on another that shares the home directory."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    own = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(own)])


def _agrees(kernel: Affine, dtype: torch.dtype) -> bool:
    """Compare both functions with torch on a layer whose sizes leave a remainder everywhere."""
    C, n, n_in, n_out = 2, 7, 5, 19
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    theta, x = draw(C, (n_in + 1) * n_out), draw(C, n, n_in)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for last in (False, True):
        block = theta.view(C, n_out, n_in + 1).mT if last else theta.view(C, n_in + 1, n_out)
        z = kernel.forward(theta, 0, x, n_in, n_out, last=last, relu=False)
        dz = torch.zeros_like(z)
        by_row = dz.mT if last else dz[..., :n_out]
        by_row.copy_(draw(C, n, n_out))
        expected = [x @ block[:, :-1] + block[:, -1:], x.mT @ by_row, by_row.sum(1, keepdim=True), by_row @ block[:, :-1].mT]
        gradient = torch.empty_like(theta)
        dx = kernel.pullback(theta, 0, x, n_in, n_out, dz.clone(), gradient, last=last, h=None, with_dx=True)
        assert dx is not None
        of_block = gradient.view(C, n_out, n_in + 1).mT if last else gradient.view(C, n_in + 1, n_out)
        found = [z.mT if last else z[..., :n_out], of_block[:, :-1], of_block[:, -1:], dx[..., :n_in]]
        if not all(torch.allclose(a, b, rtol=0, atol=tolerance) for a, b in zip(found, expected, strict=True)):
            return False
    return True
