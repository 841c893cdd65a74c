"""Size of the embedded server's buffers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MIB: Final = 2**20
LEAST, MOST, SHARE = 128, 2048, 8
# What a container may use at most, as version 2 and version 1 of control groups tell it.
_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def buffers() -> str:
    """Compute an eighth of the memory, within bounds: buffered pages cost neither reads nor early writes, and memory
    that the server never needs is never taken.
    """
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    share = min([present, *_limits()]) // SHARE // MIB
    return f"{min(max(share, LEAST), MOST)}MB"


def _limits() -> list[int]:
    found: list[int] = []
    for path in _LIMITS:
        try:
            found.append(int(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return found
