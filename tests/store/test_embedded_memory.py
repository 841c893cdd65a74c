"""How large the buffers of the embedded server are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.store.embedded import memory

GIB = 2**30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """16 GiB; the file is the limit of a container."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 * GIB // 4096}.__getitem__)
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (limit, tmp_path / "of another version"))
    return limit


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, "2048MB"), ("max\n", "2048MB"), (8 * GIB, "1024MB"), (512 * 2**20, "128MB"), (64 * GIB, "2048MB")],
)
def test_they_are_an_eighth_of_what_may_be_used(machine: Path, limit: int | str | None, expected: str) -> None:
    if limit is not None:
        machine.write_text(str(limit))
    assert memory.buffers() == expected
