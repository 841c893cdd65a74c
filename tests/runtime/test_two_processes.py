"""A server and a worker on one database, with answers of the database that are slow at random: one story for all.

`HOLDFAST_PROFILE=long` goes on for a minute with more clients.
"""

from __future__ import annotations

import os

from benchmarks.load import load

LONG = os.environ.get("HOLDFAST_PROFILE") == "long"


def test_histories_and_streams_are_in_order_and_the_last_step_is_the_current_one(holdfast_dsn: str) -> None:
    found = load(holdfast_dsn, clients=100 if LONG else 20, seconds=60.0 if LONG else 4.0, slow=0.1)
    assert found.failed == {}, found.examples
    assert found.wrong == 0, found.examples
    assert found.unordered == {"events": 0, "steps": 0, "instances": 0}
    assert found.trails > 20
    assert found.missed == 0, found.examples
    assert found.followed > 3
