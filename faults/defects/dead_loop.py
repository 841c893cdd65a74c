"""Defect 14: a lease is renewed for ever, whether or not the event loop of its process lives."""

from __future__ import annotations

from typing import Any

from faults.defects.patching import replace
from holdfast.store.queue.lease import Lease

_renew = Lease._renew


def apply() -> None:
    replace(Lease, "_renew", _beat_and_renew)


def _beat_and_renew(lease: Lease, connection: Any) -> None:
    lease.beat()
    _renew(lease, connection)
