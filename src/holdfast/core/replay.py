"""Replay: the step rows alone, folded back into the instance they describe (WF-15).

Rows are read as moments in the order of (version, ordinal): a row opens, a row closes. Each moment either takes a token
out of transit and puts it on a step, or takes it off a step and sends it on along the edge the row recorded; control
rows tell what no step can (suspend, hold, escape …). What is in transit when a version ends has arrived at a join.
Nothing is decided here: conditions, policies and clocks were settled when the rows were written.

Equal to the live instance: tokens, waits, scopes, context, status, reason. Not compared: the version (a retry raises
it without a row), fences, calls and timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from holdfast.core.program import Program
from holdfast.core.rebuild import Rebuild
from holdfast.core.rows import StepRow
from holdfast.core.state import Instance

__all__ = ["StepRow", "replay"]

Moment = tuple[int, int, int, StepRow]  # version, ordinal, 0: opens · 1: closes


def replay(program: Program, rows: Iterable[StepRow], *, instance: Instance) -> Instance:
    """`instance` lends its identity only; what it says of tokens, data and status is not looked at."""
    rebuild = Rebuild(program, instance)
    for _, moments in groupby(sorted(_moments(rows), key=lambda moment: moment[:3]), key=lambda moment: moment[0]):
        for version, _, closes, row in moments:
            rebuild.version = version
            if closes:
                rebuild.close(row)
            else:
                rebuild.open(row)
        rebuild.end_version()
    return rebuild.instance()


def _moments(rows: Iterable[StepRow]) -> Iterator[Moment]:
    for row in rows:
        yield row.opened_version, row.opened_ordinal, 0, row
        if row.closed_version is not None and row.closed_ordinal is not None:
            yield row.closed_version, row.closed_ordinal, 1, row
