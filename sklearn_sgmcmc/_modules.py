"""The module that public objects of a package name as theirs."""

from __future__ import annotations

import sys
from types import FunctionType


def set_modules(package: str) -> None:
    """Let the classes and functions in a package's ``__all__`` name the package as their module.

    Saved models, checkpoints and trusted names then do not depend on which file of the package they are in.
    """
    module = sys.modules[package]
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, type | FunctionType):
            found.__module__ = package
