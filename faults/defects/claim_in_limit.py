"""Defect 9: the rows to claim are chosen by `IN (… LIMIT n)`, which the planner may run more than once."""

from __future__ import annotations

from faults.defects.patching import Outdated, rewrite

CHOICE = """where t.worker is null and t.queue = any($1::text[]) and t.instance_id in (
        select w.instance_id from holdfast.work w where w.queue = any($1::text[]) and w.worker is null
        order by w.ripe_at limit $2::bigint for update skip locked
    )"""


def apply() -> None:
    rewrite("claim_work", _by_subquery)


def _by_subquery(text: str) -> str:
    purpose, begin, rest = text.partition("with ripe as materialized (")
    _, end, rest = rest.partition("), leased as (")
    change, join, rest = rest.partition("from ripe r\n")
    _, comma, rest = rest.partition("\n    returning t.*")
    if not all((begin, end, join, comma)):
        raise Outdated("claim_work.sql chooses its rows in another way")
    return f"{purpose}with leased as ({change}{CHOICE}{comma}{rest}"
