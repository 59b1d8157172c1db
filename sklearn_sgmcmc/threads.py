"""One torch thread while we compute: at these shapes more threads gain nothing and fight other processes for the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let this Python thread's torch calls use one thread for a while, whatever happens inside.

    torch keeps the number per Python thread, so that calls from several of them do not disturb each other.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
