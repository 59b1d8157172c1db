"""From C to a shared library: compiled once per source, compiler and processor, and kept in the user's cache directory."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SWITCH = "SKLEARN_SGMCMC_COMPILE"
HERE = Path(__file__).parent
REALS = {torch.float32: "float", torch.float64: "double"}
FLAGS = ("-O2", "-march=native", "-fno-math-errno", "-std=gnu11", "-shared", "-fPIC")
LONGEST_COMPILATION = 300.0
"""Seconds: one takes a few alone, and many times as long beside other processes. Whoever gives up has other random numbers."""


class CompilationSwitchedOffError(OSError):
    """The environment says that nothing is to be compiled."""


def compiled(name: str, real: str) -> ctypes.CDLL:
    """Return the library of ``name``.c for C's type ``real``.

    Raises OSError or SubprocessError if it cannot be had.
    """
    if os.environ.get(SWITCH, "1") == "0":
        raise CompilationSwitchedOffError(f"{SWITCH}=0")
    return ctypes.CDLL(str(library(name, real)))


def library(name: str, real: str) -> Path:
    """Return the file, compiled if it is not in the cache."""
    compiler = next(
        (found for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None
    )
    if compiler is None:
        raise OSError("no C compiler was found")
    source = HERE / f"{name}.c"
    texts = [source.read_bytes(), *(header.read_bytes() for header in sorted(HERE.glob("*.h")))]
    key = hashlib.sha256(b"\0".join([*texts, compiler.encode(), " ".join(FLAGS).encode(), _processor().encode()])).hexdigest()[:16]
    folder = _cache()
    made = folder / f"{name}-{real}-{key}.so"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:  # another process may be compiling the same: the rename is atomic
            new = Path(aside) / made.name
            command = [compiler, *FLAGS, f"-DREAL={real}", str(source), "-o", str(new), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_COMPILATION)
            new.replace(made)
    return made


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
