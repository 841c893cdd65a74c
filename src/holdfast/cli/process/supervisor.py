"""Supervisor: keep several worker processes running, each a new interpreter that is started again when it ends.

The first process is started alone. If it fails before it was ever ready, so would its siblings and its successors: the
supervisor gives up with its exit code. Once one was ready, a process that ends is replaced, after a pause that doubles
with every early end.

Processes live in sessions of their own, so that Ctrl-C in a terminal reaches only the supervisor, which passes it on
once. Each process holds one end of a socket: it reports its readiness over it, and sees it close when the supervisor is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.logs import logger

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
SETTLED: Final = 60.0  # the end of a process that lived this long is no early end

log = logger("holdfast.supervisor")


class Supervisor:
    """`arguments` of a process, by its number, follow `python -m holdfast.cli`; `--lifeline` is added to them."""

    def __init__(self, arguments: Callable[[int], Sequence[str]], processes: int) -> None:
        self._arguments = arguments
        self._processes = processes
        self._children: set[Process] = set()
        self._leave = asyncio.Event()
        self._first_ready = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run the processes until a signal or a failed first start, and return the exit code of the command."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        await asyncio.gather(*(self._keep(number) for number in range(self._processes)))
        return self._exit_code

    def _on_signal(self, number: int) -> None:
        if self._leave.is_set():
            self._exit_code = 128 + number
            self._tell(signal.SIGKILL)
            return
        log.info("Leaving: %d worker processes drain", len(self._children))
        self._stop()

    def _stop(self) -> None:
        self._leave.set()
        self._first_ready.set()
        self._tell(signal.SIGTERM)

    def _tell(self, order: signal.Signals) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(order)

    async def _keep(self, number: int) -> None:
        if number:
            await self._first_ready.wait()
        loop = asyncio.get_running_loop()
        early_ends = 0
        while not self._leave.is_set():
            began = loop.time()
            code = await self._live(number)
            if self._leave.is_set():
                return
            if not self._first_ready.is_set():
                self._exit_code = code if code > 0 else 1
                self._stop()
                return
            early_ends = 0 if loop.time() - began > SETTLED else early_ends + 1
            await self._pause(number, code, early_ends)

    async def _live(self, number: int) -> int:
        """Start a process, wait for its end and return its exit code."""
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                given = self._arguments(number)
                command = [sys.executable, "-m", "holdfast.cli", *given, "--lifeline", str(theirs.fileno())]
                child = await asyncio.create_subprocess_exec(
                    *command, stdin=DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            self._children.add(child)
            if self._leave.is_set():
                child.send_signal(signal.SIGTERM)
            try:
                await self._attend(child, ours)
                return await child.wait()
            finally:
                self._children.discard(child)

    async def _attend(self, child: Process, ours: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            if await asyncio.get_running_loop().sock_recv(ours, 1) and not self._first_ready.is_set():
                self._first_ready.set()

    async def _pause(self, number: int, code: int, early_ends: int) -> None:
        pause = 0.0 if code == 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (max(early_ends, 1) - 1))
        log.warning("Worker process %d ended %s; the next one starts in %.1f s", number + 1, _how(code), pause)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._leave.wait()


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
