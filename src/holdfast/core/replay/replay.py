"""Replay: the step rows alone, folded back into the instance they describe (WF-15).

Rows are read as moments in the order of (version, ordinal): a row opens, a row closes. Each moment either takes a token
out of transit and puts it on a step, or takes it off a step and sends it on along the edge the row recorded; control
rows hold the changes that no step has (suspend, hold, escape …). A token in transit when a version ends has arrived at
a join. Nothing is decided here: conditions, policies and clocks were settled when the rows were written. Rows before a
migration are read with the graph they were written under. An instance that rests for years is carried into the present
month now and then; its replay begins at the checkpoint that was written with it.

Equal to the live instance: tokens, waits, scopes, context, status, reason. Not compared: the version (a retry raises
it without a row), fences, calls and timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from holdfast.core.model.control_rows import Checkpoint, Migrated, read_control
from holdfast.core.model.ids import CONTROL
from holdfast.core.model.program import Program
from holdfast.core.model.renames import MIGRATE
from holdfast.core.model.rows import StepRow
from holdfast.core.model.state import Instance, Token
from holdfast.core.replay.controls import follow
from holdfast.core.replay.rebuild import Rebuild

__all__ = ["StepRow", "definitions_of", "in_order", "replay", "since_checkpoint", "visited"]

Moment = tuple[int, int, int, StepRow]  # version, ordinal, 0: opens · 1: closes


def replay(
    program: Program, rows: Iterable[StepRow], *, instance: Instance, programs: Mapping[bytes, Program] | None = None
) -> Instance:
    """Fold the rows into the instance. `instance` lends its identity only: its tokens, data and status are ignored.

    `program` is the graph the instance is on now; `programs` has those it was migrated from, by definition.
    """
    found = since_checkpoint(rows)
    rebuild = _begin(program, found, instance, programs)
    for _, moments in groupby(in_order(found), key=lambda moment: moment[0]):
        for version, _, closes, row in moments:
            rebuild.version = version
            if closes:
                rebuild.close(row)
            else:
                _open(rebuild, row)
        rebuild.end_version()
    return rebuild.instance()


def visited(
    program: Program,
    rows: Iterable[StepRow],
    step: bytes,
    *,
    instance: Instance,
    programs: Mapping[bytes, Program] | None = None,
) -> Token:
    """The token as it was when it opened that step, with the value it brought along."""
    found = since_checkpoint(rows)
    rebuild = _begin(program, found, instance, programs)
    for _, moments in groupby(in_order(found), key=lambda moment: moment[0]):
        for _, _, closes, row in moments:
            if closes:
                rebuild.close(row)
                continue
            _open(rebuild, row)
            if row.id == step:
                return rebuild.tokens[row.path]
        rebuild.end_version()
    raise KeyError(step)


def since_checkpoint(rows: Iterable[StepRow]) -> list[StepRow]:
    """The rows from the newest checkpoint on; all of them where there is none.

    Those before it may be there in part only: months go one by one.
    """
    found = list(rows)
    newest = max((row.opened_version for row in found if row.node == Checkpoint.node), default=0)
    return [row for row in found if row.opened_version >= newest]


def definitions_of(rows: Iterable[StepRow]) -> list[bytes]:
    """The definitions an instance was migrated from and to, oldest first; none if it never was."""
    migrations = sorted((row for row in rows if row.node == MIGRATE), key=lambda row: row.opened_version)
    records = [read_control(Migrated, row.detail) for row in migrations]
    sides = [side for record in records for side in (record.came_from, record.went_to)]
    return list(dict.fromkeys(bytes.fromhex(side.definition) for side in sides))


def _open(rebuild: Rebuild, row: StepRow) -> None:
    if row.kind == CONTROL:
        follow(rebuild, row)
    else:
        rebuild.open(row)


def _begin(
    program: Program, rows: list[StepRow], instance: Instance, programs: Mapping[bytes, Program] | None
) -> Rebuild:
    """Make an empty rebuild with the graph that the first row was written under."""
    known = {**(programs or {}), program.definition: program}
    past = definitions_of(rows)
    return Rebuild(known[past[0]] if past else program, instance, known)


def in_order(rows: Iterable[StepRow]) -> list[Moment]:
    """Sort the moments of the rows: each says 0 where its row opens and 1 where it closes."""
    return sorted(_moments(rows), key=lambda moment: moment[:3])


def _moments(rows: Iterable[StepRow]) -> Iterator[Moment]:
    for row in rows:
        yield row.opened_version, row.opened_ordinal, 0, row
        if row.closed_version is not None and row.closed_ordinal is not None:
            yield row.closed_version, row.closed_ordinal, 1, row
