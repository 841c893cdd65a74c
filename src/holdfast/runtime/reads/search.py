"""Filter for instances, shared by lists, bulk verbs, HTTP and the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.model.status import InstanceStatus
from holdfast.errors import Refused
from holdfast.runtime.reads.views import Page, shown_id, take_wanted
from holdfast.runtime.validation import Id, check_key, check_text, take_id, take_utc
from holdfast.store.pg.session import Session
from holdfast.store.reads import instances
from holdfast.store.reads.instances import Instance
from holdfast.store.reads.search import ALWAYS, FOREVER, Wanted, moment_or, search_instances


class InstanceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for instances: all fields must match, None matches all.

    `error` is the code of the last error, `with_reason` the reason of the present status. `step` is the current step of
    an instance, or the source of its last error. `since` and `until` bound the start, `ended_since` and `ended_until`
    the end; the later bound is not included.
    """

    flow: str | None = None
    status: str | None = None
    key: str | None = None
    business_key: str | None = None
    subject_id: str | None = None
    attributes: dict[str, Any] | None = None
    parent: Id | None = None
    error: str | None = None
    with_reason: str | None = None
    step: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None


async def find_instances(
    session: Session, org: str, filter: InstanceFilter, after: bytes | None, limit: int
) -> Page:  # fmt: skip
    """A page of what the filter means. By most wishes it may be short although there are more: only `next` tells."""
    wanted = _wanted(filter)
    if filter.key is None and filter.parent is None and wanted.is_selective:
        found, end = await search_instances(session, org, wanted, after, limit)
        return Page(found, None if end is None else shown_id(end))
    found = await instances.list_instances(
        session,
        org,
        flow=filter.flow,
        status=filter.status,
        key=filter.key,
        business_key=filter.business_key,
        parent=None if filter.parent is None else take_id(filter.parent),
        started=(moment_or(wanted.since, ALWAYS), moment_or(wanted.until, FOREVER)),
        after=after,
        limit=limit + 1,
    )
    items = [one for one in found[:limit] if _fits(one, wanted)]
    return Page(items, found[limit - 1].id if len(found) > limit else None)


def _wanted(filter: InstanceFilter) -> Wanted:
    status = filter.status
    if status is not None and status not in tuple(InstanceStatus):
        raise Refused(
            f"There is no status {status!r}.", code="STATUS_UNKNOWN", hint=f"One of {', '.join(InstanceStatus)}."
        )
    check_key(filter.key, "idempotency key")
    check_text(filter.error, "code of the error")
    check_text(filter.with_reason, "reason of the instances")
    check_text(filter.step, "name of the step")
    _check_step(filter)
    return take_wanted(
        Wanted(
            flow=filter.flow,
            starter=filter.subject_id,
            business_key=filter.business_key,
            attributes=filter.attributes or {},
            error=filter.error,
            reason=filter.with_reason,
            step=filter.step,
            since=take_utc(filter.since, "since"),
            until=take_utc(filter.until, "until"),
            ended_since=take_utc(filter.ended_since, "ended_since"),
            ended_until=take_utc(filter.ended_until, "ended_until"),
        ),
        () if status is None else (status,),
    )


def _check_step(filter: InstanceFilter) -> None:
    if filter.step is None:
        return
    if filter.status == InstanceStatus.COMPLETED:
        raise Refused(
            "An instance that completed stands at no step.",
            code="SEARCH_TOO_WIDE",
            hint="Leave out `step`, or name another status.",
        )
    if filter.key is not None or filter.parent is not None:
        raise Refused(
            "Instances of one key or one parent are few: they are not searched by step.",
            code="SEARCH_TOO_WIDE",
            hint="Leave out `step`.",
        )


def _fits(found: Instance, wanted: Wanted) -> bool:
    """All but the step, for lists that are short by themselves."""
    carried: dict[str, Any] = found.attributes or {}
    error: dict[str, Any] = found.error or {}
    return (
        wanted.starter in (None, found.created_by)
        and wanted.attributes.items() <= carried.items()
        and wanted.reason in (None, found.reason)
        and wanted.error in (None, error.get("code"))
        and _is_between(found.created_at, wanted.since, wanted.until)
        and _is_between(found.completed_at, wanted.ended_since, wanted.ended_until)
    )


def _is_between(moment: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    if since is None and until is None:
        return True
    return moment is not None and (since is None or moment >= since) and (until is None or moment < until)
