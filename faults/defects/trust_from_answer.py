"""Defect 15: trust in a lease is counted from the answer of its renewal."""

from __future__ import annotations

import time
from typing import Any

from faults.defects.patching import replace
from holdfast.store.queue.lease import Lease

_renew = Lease._renew


def apply() -> None:
    replace(Lease, "_renew", _trust_the_answer)


def _trust_the_answer(lease: Lease, connection: Any) -> None:
    _renew(lease, connection)
    if lease._trusted_until:
        lease._trusted_until = time.monotonic() + lease.seconds
