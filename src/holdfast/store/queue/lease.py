"""A worker's lease, kept by a thread with a connection of its own: a busy event loop or a full pool cannot starve it.

Every process start has an id. A lease that ran out is never renewed: the process continues under a new id, and the work
it held under the old one belongs to other workers, who find it by a plain query. Trust is measured on the local
monotonic clock from the moment a renewal was *sent*, so the process stops trusting its lease before another worker may
take over.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.payloads import canonical
from holdfast.store.pg.connect import dial_blocking, pauses
from holdfast.store.pg.silence import cut_after
from holdfast.store.pg.statements import SQL, Statement
from holdfast.version import __version__

log = logger("holdfast.lease")

# How long a lease is renewed for an event loop that shows no sign of life: longer than a careless handler blocks it.
STALL_SECONDS = 60.0
STALL_LEASES = 10


class Lease:
    def __init__(self, dsn: str, seconds: float, on_new_id: Callable[[bytes], None]) -> None:
        self.id = uuid.uuid4().bytes
        self.seconds = seconds
        self.queues: Sequence[str] = ()  # what the worker serves; others learn of a change with the next renewal
        self.origins: Mapping[str, str] = {}  # where the code of its handlers is
        self._dsn = dsn
        self._on_new_id = on_new_id
        self.trusted_until = 0.0  # on the monotonic clock; hot paths compare it themselves
        self._beat_at = time.monotonic()
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self.trusted_until

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.trusted_until - time.monotonic())

    def beat(self) -> None:
        """Report that the event loop is alive. A loop that hangs must not keep its work from other workers for ever."""
        self._beat_at = time.monotonic()

    def start(self) -> None:
        self._beat_at = time.monotonic()
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _keep(self) -> None:
        """Register, renew three times per lease, reconnect when the connection goes away."""
        registered, waits = False, pauses(min(0.5, self.seconds / 6))
        while not self._stop.is_set():
            try:
                with dial_blocking(self._dsn) as connection:
                    if not registered:
                        self._register(connection)
                        registered = True
                        self._ready.set()
                    else:
                        self._renew(connection)  # the connection may have been away for long
                    while not self._stop.wait(self.seconds / 3):
                        self._renew(connection)
                    self._run(connection, SQL.stop_worker, [self.id])
            except (psycopg.Error, StoreError) as failure:
                if not registered:
                    self._failure = _unreachable(failure)
                    self._ready.set()
                    return
                log.warning("The lease could not be renewed: %s", failure)
                self._stop.wait(next(waits))

    def _renew(self, connection: psycopg.Connection[Any]) -> None:
        sent = time.monotonic()
        if sent - self._beat_at > max(STALL_SECONDS, STALL_LEASES * self.seconds):
            log.error("The event loop has stood still for %.0f s; its lease is left to run out", sent - self._beat_at)
            return
        if self._run(connection, SQL.renew_lease, [self.queues, self.id, self.seconds, self._origins()]):
            self.trusted_until = sent + self.seconds
            return
        lost, self.trusted_until, self.id = self.id, 0.0, uuid.uuid4().bytes
        log.warning(
            "The lease of worker %s ran out; going on as %s", uuid.UUID(bytes=lost), uuid.UUID(bytes=self.id),
            extra={"error": "LEASE_LOST", "next": "other workers take its steps over"},
        )  # fmt: skip
        self._register(connection)
        self._on_new_id(self.id)

    def _register(self, connection: psycopg.Connection[Any]) -> None:
        sent = time.monotonic()
        about = [self.queues, self.id, platform.node(), os.getpid(), __version__, self.seconds, self._origins()]
        self._run(connection, SQL.insert_worker, about)
        self.trusted_until = sent + self.seconds

    def _origins(self) -> str:
        return canonical(dict(self.origins)).decode()

    def _run(self, connection: psycopg.Connection[Any], statement: Statement, parameters: Sequence[object]) -> int:
        values = [uuid.UUID(bytes=p) if isinstance(p, bytes) else p for p in parameters]
        with cut_after(connection, self.seconds), connection.transaction(), psycopg.RawCursor(connection) as cursor:
            cursor.execute(SQL.use_worker.sql)
            return cursor.execute(statement.sql, values).rowcount


def _unreachable(failure: psycopg.Error | StoreError) -> StoreError:
    if isinstance(failure, StoreError):
        return failure
    return StoreError(
        f"The worker could not take a lease: {str(failure).strip()}",
        code="STORE_UNREACHABLE",
        hint="Check that the server is up, and that the login is a member of holdfast_worker.",
    )
