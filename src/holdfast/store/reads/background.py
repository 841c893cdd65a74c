"""The background of a call: the input of its instance, and the results of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.core.model.renames import MIGRATE, names_today
from holdfast.graph.model import Behaviour
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int

MOST_VISITS: Final = 1000  # the newest: some instances go in circles for years, and one read must not grow with them
ANSWERING: Final = (
    Behaviour.WORK,
    Behaviour.CALL,
    Behaviour.REST,
    Behaviour.JOIN,
)  # others pass on what they are given


class Background(msgspec.Struct, frozen=True):
    """JSON as it is stored; `results` by the names that steps have today."""

    input: bytes
    key: str | None
    business_key: str | None
    attributes: bytes | None
    results: dict[str, bytes]


async def read_background(session: Session, org: str, id: bytes) -> Background | None:
    start = SQL.read_start.one(id, id[15], org)
    results = SQL.list_results.arrays([ANSWERING], id, id[15], org, MOST_VISITS)
    answers = await session.once(SQL.use_tenant.one(org), start, results)
    found = rows(answers[1])
    if not found:
        return None
    [[input, key, business_key, attributes]] = found
    return Background(input[1:], _text(key), _text(business_key), _json(attributes), _results(rows(answers[2])))


def _results(visits: Sequence[Sequence[Any]]) -> dict[str, bytes]:
    """The newest answer of every step, in the order the steps were visited."""
    found = sorted(
        ((read_int(version), read_int(ordinal)), node.decode(), _json(output), _json(detail))
        for node, version, ordinal, output, detail in visits
    )
    today = names_today((moment, detail) for moment, node, _, detail in found if node == MIGRATE)
    results: dict[str, bytes] = {}
    for moment, node, output, _ in found:
        if node != MIGRATE and output is not None:
            name = today(node, moment)
            results.pop(name, None)
            results[name] = output
    return results


def _json(value: bytes | None) -> bytes | None:
    return None if value is None else value[1:]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
