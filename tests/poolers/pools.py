"""A pool in front of a database: which kinds there are on this machine, and the way through each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import bouncer

from holdfast import Engine
from proxy import pooling_proxy

SIZE = 3


@dataclass(frozen=True)
class Pooled:
    """A pool in front of a test's own database, and the way past it."""

    dsn: str
    direct: str
    size: int = SIZE

    def engine(self, *, listening: bool = True) -> Engine:
        return Engine(self.dsn, direct_dsn=self.direct if listening else None)


def kinds() -> list[str]:
    """The pooler that every machine has, and PgBouncer where it is installed; `make pooler` insists on the latter."""
    if wanted := os.environ.get("HOLDFAST_POOLER"):
        return [wanted]
    return ["proxy"] if bouncer.find() is None else ["proxy", "pgbouncer"]


@contextmanager
def through(kind: str, dsn: str, size: int = SIZE) -> Iterator[str]:
    if kind == "pgbouncer":
        with bouncer.pgbouncer(dsn, size) as address:
            yield address
    else:
        with pooling_proxy(dsn, size) as (address, _):
            yield address
