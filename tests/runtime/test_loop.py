"""The loop that `holdfast.run`, the worker and the server choose."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

import holdfast


async def loop_in_use() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_is_used_where_it_is_installed() -> None:
    assert isinstance(holdfast.run(loop_in_use()), uvloop.Loop)


def test_without_it_the_loop_is_that_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert not isinstance(holdfast.run(loop_in_use()), uvloop.Loop)


def test_what_main_raises_comes_out() -> None:
    async def fails() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        holdfast.run(fails())
