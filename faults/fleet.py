"""Worker processes that can be killed, frozen and thawed, and the knowledge which of them holds a lease."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg

from faults import nursery
from faults.worker import Task

HELD = """
select w.pid, count(*) from holdfast.work k join holdfast.workers w on w.id = k.worker
where w.lease_until > clock_timestamp() group by 1
"""
# A dead process renews nothing, so its rows stay as they are until the lease is over and somebody takes them.
HELD_BY = """
select k.instance_id::text, k.step_id::text, k.fence
from holdfast.work k join holdfast.workers w on w.id = k.worker where w.pid = %s
"""
PATIENCE = 60.0


class Silent(Exception):
    """A worker did not say in time what it was expected to say."""


class Member:
    """One worker process."""

    def __init__(self, task: Task, log: Path, environment: dict[str, str]) -> None:
        self._nursery = nursery.shared()
        its_input, speech = os.pipe()
        ear, its_output = os.pipe()
        with log.open("ab") as errors:
            self.pid = self._nursery.bear(asdict(task), environment, [its_input, its_output, errors.fileno()])
        os.close(its_input)
        os.close(its_output)
        self._speech = speech
        self.is_frozen = False
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._hear, args=(ear,), daemon=True).start()

    def _hear(self, ear: int) -> None:
        with os.fdopen(ear) as lines:
            for text in lines:
                if text.startswith("{"):
                    self._said.put(json.loads(text))

    def hear(self, patience: float = PATIENCE) -> dict[str, Any]:
        try:
            return self._said.get(timeout=patience)
        except queue.Empty:
            raise Silent(f"worker {self.pid} said nothing for {patience:.0f} s, exit code {self.code}") from None

    @property
    def lives(self) -> bool:
        return self.code is None

    @property
    def code(self) -> int | None:
        """How it ended, None while it lives."""
        return self._nursery.code(self.pid)

    def stats(self) -> dict[str, int]:
        os.write(self._speech, b"stats\n")
        return self.hear()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        if self.lives:
            with contextlib.suppress(ProcessLookupError):  # it went by itself this very moment
                os.kill(self.pid, signal.SIGKILL)
            self._nursery.wait(self.pid, PATIENCE)

    def leave(self, patience: float = PATIENCE) -> int:
        """In order, on SIGTERM; answers the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self._nursery.wait(self.pid, patience)

    def forget(self) -> None:
        self.kill()
        os.close(self._speech)


class Fleet:
    """`dsn` is what the workers use, maybe through a proxy; `eyes` what the fleet itself looks through."""

    def __init__(
        self, task: Task, place: Path, *, eyes: str | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.task = task
        self.members: list[Member] = []
        self._all: list[Member] = []
        self._eyes = eyes or task.dsn
        self._log = place / "workers.log"
        self._environment = environment or {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is not None:
            print(f"the workers' last words:\n{self.last_words()}")
        for member in self._all:
            member.forget()

    def grow(self, count: int, *, ready: bool = True) -> list[Member]:
        new = [Member(self.task, self._log, self._environment) for _ in range(count)]
        self.members += new
        self._all += new
        if ready:
            for member in new:
                member.hear()
        return new

    # --- who holds what --------------------------------------------------------------------------------------------

    def holding(self) -> dict[int, int]:
        """Leased steps by process id, of workers whose lease is good."""
        with psycopg.connect(self._eyes, autocommit=True) as connection:
            return dict(connection.execute(HELD).fetchall())

    def held_by(self, member: Member) -> list[tuple[str, str, int]]:
        """(instance, step, fence) of everything leased to any incarnation of this process."""
        with psycopg.connect(self._eyes, autocommit=True) as connection:
            return connection.execute(HELD_BY, (member.pid,)).fetchall()

    def holder(self, luck: random.Random, patience: float = PATIENCE, least: int = 1) -> Member:
        """Some member that holds a lease right now."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            holding = self.holding()
            found = [m for m in self.members if m.lives and not m.is_frozen and holding.get(m.pid, 0) >= least]
            if found:
                return luck.choice(found)
            time.sleep(0.005)
        raise Silent(f"no worker held {least} leases within {patience:.0f} s")

    # --- what is done to them --------------------------------------------------------------------------------------

    def kill(self, member: Member) -> list[tuple[str, str, int]]:
        """kill -9. Answers what it held at that moment: a kill that hit nothing counts for nothing."""
        member.kill()
        self.members.remove(member)
        return self.held_by(member)

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:]) if self._log.exists() else ""
