"""An examination of the database: each check asks one question and answers with findings.

A check that may not be made, for want of privileges, says so and is not taken for good news. Nothing is changed, and
every check has a short limit, so that the examination of a sick database ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import psycopg

from holdfast.errors import StoreError
from holdfast.store.admin.connection import WORKER, Desk, Errand, NotPermitted
from holdfast.store.admin.schema import latest

SECONDS: Final = 10.0  # for one check
SEVERITIES: Final = ("ok", "unknown", "advice", "warning", "critical")
NAMED: Final = 5  # tenants, in a message
HOUR: Final = 3600.0
_EXIT_CODES: Final = {"warning": 1, "critical": 2}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one check: `value` against `threshold`, both in `unit`; `action` says how to repair it."""

    code: str
    severity: str
    message: str
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    subject: str = ""
    action: str = ""


class Report(msgspec.Struct, frozen=True):
    findings: list[Finding]

    @property
    def severity(self) -> str:
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default="ok")

    @property
    def exit_code(self) -> int:
        """0 all well, 1 something needs attention, 2 something is wrong now."""
        return _EXIT_CODES.get(self.severity, 0)


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Values from which a finding is a warning, and from which it is critical. Times in seconds."""

    queue_warning: float = 60.0
    queue_critical: float = 600.0
    outbox_warning: float = 120.0
    outbox_critical: float = 1800.0
    transaction_warning: float = 60.0
    transaction_critical: float = 600.0
    slot_critical: float = 10.0 * 2**30  # bytes of write-ahead log held back
    notify_warning: float = 0.1  # share of the notification queue
    notify_critical: float = 0.5
    consumer_warning: float = 300.0
    consumer_critical: float = 3600.0
    letters_critical: float = 1000.0
    failed_warning: float = 10.0  # instances within an hour: a flow may be made to fail now and then
    failed_critical: float = 1000.0
    notices_critical: float = 1000.0  # about errors, within an hour
    months_warning: float = 2.0
    months_critical: float = 1.0
    default_critical: float = 100_000.0  # rows: moving more keeps writers waiting for long
    dead_rows_warning: float = 50_000.0
    dead_rows_critical: float = 1_000_000.0
    xid_warning: float = 300_000_000.0  # the server freezes by itself from 200 million on
    xid_critical: float = 1_000_000_000.0
    clock_warning: float = 1.0
    clock_critical: float = 60.0


Check = Callable[[Errand, Thresholds], Iterator[Finding]]


def examine(dsn: str, thresholds: Thresholds | None = None) -> Report:
    """Every check, each in a transaction of its own; a database that does not answer is a finding too."""
    findings: list[Finding] = []
    with Desk(dsn, patience=SECONDS) as desk:
        for code, (check, role) in CHECKS.items():
            try:
                with desk.transaction(role) as errand:
                    found = list(check(errand, thresholds or Thresholds()))
            except NotPermitted as refusal:
                found = [_not_permitted(code, str(refusal))]
            except StoreError as failure:
                return Report([*findings, _unreachable(failure)])
            except psycopg.errors.UndefinedObject:  # the role is not there
                found = [_no_schema(code)]
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
                found = [_no_schema(code)]
            except psycopg.Error as failure:
                found = [Finding(code, "unknown", f"The check failed: {str(failure).strip()}")]
            findings += found or [Finding(code, "ok", GOOD[code])]
    return Report(findings)


def _graded(
    code: str,
    value: float,
    warning: float,
    critical: float,
    message: str,
    action: str,
    *,
    unit: str = "s",
    subject: str = "",
) -> Iterator[Finding]:
    """A finding when the value has reached a threshold."""
    if value >= min(warning, critical):
        severity, threshold = ("critical", critical) if value >= critical else ("warning", warning)
        yield Finding(code, severity, message, value, threshold, unit, subject, action)


def _not_permitted(code: str, refusal: str) -> Finding:
    action = "Grant the login holdfast_worker, and pg_monitor for what the server tells about others."
    return Finding(code, "unknown", f"This may not be checked by this login: {refusal}", action=action)


def _no_schema(code: str) -> Finding:
    severity = "critical" if code == "schema" else "unknown"
    action = "Run `holdfast db migrate`, then examine it again."
    return Finding(code, severity, "This cannot be checked: the schema lacks what it needs.", action=action)


def _unreachable(failure: StoreError) -> Finding:
    return Finding("database", "critical", failure.message, action=failure.hint)


# --- the checks ----------------------------------------------------------------------------------------------------


def _schema(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    found, wanted = errand.one("doctor", "read_schema")[0], latest()
    facts: dict[str, Any] = {"value": found, "threshold": wanted, "unit": "migration"}
    if found > wanted:
        message = f"The schema is at {found}; this release knows up to {wanted}."
        yield Finding("schema", "critical", message, **facts, action="Use the release that made it, or a newer one.")
    elif found < wanted:
        message = f"The schema is at {found}; this release is made for {wanted}."
        severity = "warning" if found else "critical"
        yield Finding("schema", severity, message, **facts, action="Run `holdfast db migrate`.")


def _partitions(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for table, rows, ahead in errand.run("doctor", "read_partitions"):
        if ahead < limits.months_warning:
            critical = ahead < limits.months_critical
            yield Finding(
                "partitions_ahead", "critical" if critical else "warning",
                f"Of {table}, {ahead} months beyond the present one have a partition.",
                ahead, limits.months_critical if critical else limits.months_warning, "months", table,
                "Run `holdfast maintain --once`, and see that a worker runs: it makes them by itself.",
            )  # fmt: skip
        yield from _graded(
            "default_partition", rows, 1, limits.default_critical,
            f"{rows} rows of {table} are in the default partition: their month had none when they came.",
            "Run `holdfast maintain --once` in a quiet hour: it moves them while writers of the table wait.",
            unit="rows", subject=table,
        )  # fmt: skip


def _signals(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for kind, age in errand.run("doctor", "read_oldest_signals"):
        yield from _graded(
            "oldest_signal", age, limits.queue_warning, limits.queue_critical,
            f"The oldest {kind} has waited for {age:.0f} s.",
            "See that workers run and are not overloaded; look at dead letters and at `holdfast stuck list`.",
            subject=kind,
        )  # fmt: skip


def _work(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for queue, age, served in errand.run("doctor", "read_oldest_work"):
        message = f"Work in the queue {queue!r} has waited for {max(age, 0):.0f} s"
        if not served:
            yield Finding(
                "queue_unserved", "critical" if age >= limits.queue_critical else "warning",
                f"{message}, and no live worker serves it.", age, limits.queue_critical, "s", queue,
                "Start a worker that has this handler, with the same `--app`, or `--queue` that queue.",
            )  # fmt: skip
        else:
            yield from _graded(
                "oldest_work", age, limits.queue_warning, limits.queue_critical, f"{message}.",
                "Add workers or raise their concurrency; look for handlers that take longer than they should.",
                subject=queue,
            )  # fmt: skip


def _outbox(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    [age] = errand.one("doctor", "read_oldest_effect")
    if age is not None:
        yield from _graded(
            "outbox_lag", age, limits.outbox_warning, limits.outbox_critical,
            f"The oldest effect that is due has waited for {age:.0f} s.",
            "See that a worker delivers effects and that its targets answer.",
        )  # fmt: skip


def _left_effects(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for kind, target, code, message, count, age in errand.run("doctor", "list_left_effects", limits.outbox_warning):
        where = f"{count} effects of the kind {kind!r} to {target!r}"
        lacking = f"no live worker has what they take: {message}" if code else "no worker has taken them on"
        yield Finding(
            "effects_left", "critical" if age >= limits.outbox_critical else "warning",
            f"{where} have waited for {age:.0f} s, and {lacking}", age, limits.outbox_critical, "s", kind,
            "Set the secret or the mail server for a worker, or start one that has the kind; no attempt was used up.",
        )  # fmt: skip


def _consumers(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for org, environment, name, open_facts, age, down in errand.run("doctor", "list_late_consumers"):
        whose = f"The consumer {name!r} of {environment!r} of the tenant {org!r}"
        if down is not None:
            yield Finding(
                "consumers", "critical" if age >= limits.consumer_critical else "warning",
                f"{whose} is down for {down:.0f} s, and its oldest open fact has waited for {age:.0f} s.", age,
                limits.consumer_critical, "s", name,
                "Start it, or remove it: what is open for it is kept, and machines it gates stand still.",
            )  # fmt: skip
        else:
            yield from _graded(
                "consumers", age, limits.consumer_warning, limits.consumer_critical,
                f"{whose} is {age:.0f} s behind, with {open_facts} open facts.",
                "Look at its log and at notices of it; add processes, or raise its `in_flight`.", subject=name,
            )  # fmt: skip


def _letters(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    found = errand.run("doctor", "count_dead_letters", int(limits.letters_critical))
    count = sum(letters for _, letters in found)
    more = " or more" if count >= limits.letters_critical else ""
    yield from _graded(
        "dead_letters", count, 1, limits.letters_critical,
        f"{count}{more} dead letters wait for a person: {_by_tenant(found)}.",
        "Look at `holdfast dlq list --all-tenants`; replay them once the cause is gone, or discard them.",
        unit="letters",
    )  # fmt: skip


def _by_tenant(found: list[tuple[Any, ...]]) -> str:
    named = [f"{count} of {org!r}" for org, count in found[:NAMED]]
    return ", ".join([*named, f"and {len(found) - NAMED} tenants more"] if len(found) > NAMED else named)


def _stopped(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    most = int(limits.failed_critical)
    for status, org, flow, count, why, first in errand.run("doctor", "count_stopped_instances", HOUR, most):
        whose, about = f"{count} instances of {flow!r} of the tenant {org!r}", f"{why} (for example {first})"
        if status == "failed":
            is_many = count >= limits.failed_warning
            yield Finding(
                "instances_stopped", "critical" if count >= most else "warning" if is_many else "advice",
                f"{whose} failed within the last hour: {about}.", count, limits.failed_warning, "instances", flow,
                f"Look at `holdfast list --tenant {org} --flow {flow} --status failed`.",
            )  # fmt: skip
        else:
            follow = "resume them" if status == "suspended" else "answer their dead letters"
            yield Finding(
                "instances_stopped", "warning", f"{whose} stand still, {status}: {about}.", count, 1, "instances", flow,
                f"Look at `holdfast list --tenant {org} --flow {flow} --status {status}`, and {follow}.",
            )  # fmt: skip


def _workers(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    live, lost, waiting, places = errand.one("doctor", "count_workers")
    if lost:
        yield Finding(
            "workers_lost", "warning", f"{lost} workers ended without a word within the last day: {places}.", lost, 1,
            "workers",
            action="Look at the logs of their processes; their work was taken over when the lease ran out.",
        )  # fmt: skip
    if not live:
        yield Finding(
            "workers_live", "critical" if waiting else "advice",
            "No worker is alive" + (", and there is something to do." if waiting else "."), 0, 1, "workers",
            action="Start `holdfast worker`.",
        )  # fmt: skip


def _rivals(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    for name, places in errand.run("doctor", "list_rival_handlers"):
        yield Finding(
            "handler_rivals", "warning", f"The handler {name!r} is offered from different places: {places}.",
            subject=name, action="Give each service its own name: Engine(app=…), --app or HOLDFAST_APP.",
        )  # fmt: skip


def _transactions(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    hidden = 0
    for who, age, is_hidden in errand.run("doctor", "read_old_transactions"):
        hidden += is_hidden
        if not is_hidden:
            yield from _graded(
                "oldest_transaction", age, limits.transaction_warning, limits.transaction_critical,
                f"A transaction of {who} has been open for {age:.0f} s; no dead row younger than it can be freed.",
                "End it (pg_terminate_backend, or ROLLBACK PREPARED), and set idle_in_transaction_session_timeout.",
                subject=who,
            )  # fmt: skip
    if hidden:
        yield _not_permitted("oldest_transaction", f"{hidden} sessions of others are hidden from it")


def _slots(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for slot, active, retained, status in errand.run("doctor", "read_slots"):
        if not active or retained >= limits.slot_critical:
            yield Finding(
                "replication_slot", "critical" if retained >= limits.slot_critical or status == "lost" else "warning",
                f"The replication slot {slot!r} {'lags' if active else 'is used by nobody'} and holds back"
                f" {retained / 2**20:.0f} MiB of write-ahead log.",
                retained, limits.slot_critical, "bytes", slot,
                "Bring its standby back, or drop the slot (pg_drop_replication_slot); set max_slot_wal_keep_size.",
            )  # fmt: skip


def _notifications(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    [usage] = errand.one("doctor", "read_notify_usage")
    yield from _graded(
        "notify_queue", usage, limits.notify_warning, limits.notify_critical,
        f"The notification queue is {usage:.0%} full; when it is full, commits that notify fail.",
        "A session that listens sits in an open transaction: end it.", unit="share",
    )  # fmt: skip


def _bloat(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for table, dead, live, vacuumed in errand.run("doctor", "read_dead_rows", int(limits.dead_rows_warning)):
        when = "never" if vacuumed is None else f"last {vacuumed:%Y-%m-%d %H:%M}"
        yield from _graded(
            "dead_rows", dead, limits.dead_rows_warning, limits.dead_rows_critical,
            f"{table} has {dead} dead rows beside {live} live ones; it was vacuumed {when}.",
            "Look for an old transaction or a slot that holds them back, then VACUUM the table.",
            unit="rows", subject=table,
        )  # fmt: skip


def _freezing(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for what, age in errand.run("doctor", "read_freeze_ages"):
        yield from _graded(
            "xid_age", age, limits.xid_warning, limits.xid_critical,
            f"The oldest {what} is {age} transactions old; the server stops at about two billion.",
            "Look for what holds vacuum back (old transactions, slots, prepared transactions), then VACUUM FREEZE.",
            unit="transactions", subject=what,
        )  # fmt: skip


def _clock(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    [behind] = errand.one("doctor", "read_clock_regression")
    yield from _graded(
        "clock_regression", behind or 0.0, limits.clock_warning, limits.clock_critical,
        f"The database's clock is {behind or 0:.0f} s behind a moment it has already recorded.",
        "Correct the clock of the server; until it catches up, timers fire late.",
    )  # fmt: skip


def _upkeep(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    for task, error in errand.run("doctor", "list_failed_tasks"):
        yield Finding(
            "upkeep", "warning", f"The upkeep of {task} failed: {error}", subject=task,
            action="Remove the cause; it is tried again by itself, or by `holdfast maintain --once`.",
        )  # fmt: skip


def _left_months(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    for [written] in errand.run("doctor", "read_left_months"):
        for left in msgspec.json.decode(written):
            yield Finding(
                "months_held", "advice",
                f"{left['count']} instances of {left['flow']!r} hold months that are old enough to go: {left['why']}"
                f" (for example {left['example']}).",
                left["count"], 1, "instances", left["flow"],
                "End them, or answer what they wait for; until then their months are kept.",
            )  # fmt: skip


def _durability(errand: Errand, _: Thresholds) -> Iterator[Finding]:
    fsync, synchronous, pages, wal = errand.one("doctor", "read_durability")
    for name, value in (("fsync", fsync), ("synchronous_commit", synchronous), ("full_page_writes", pages)):
        if value == "off":
            yield Finding(
                "durability", "warning", f"{name} is off: commits that were answered can be lost in a crash.",
                subject=name, action=f"Set {name} = on and reload the server.",
            )  # fmt: skip
    if wal < 4 * 2**30:
        yield Finding(
            "wal_size", "advice", f"max_wal_size is {wal / 2**20:.0f} MiB; busy engines checkpoint all the time.",
            wal, 4 * 2**30, "bytes", "max_wal_size", "Set max_wal_size = 8GB.",
        )  # fmt: skip


def _notices(errand: Errand, limits: Thresholds) -> Iterator[Finding]:
    for code, org, count in errand.run("doctor", "count_error_notices", int(limits.notices_critical)):
        more = " or more" if count >= limits.notices_critical else ""
        yield from _graded(
            "notices", count, 1, limits.notices_critical,
            f"{count}{more} notices {code} of {org!r} were written within the last hour.",
            "Look at `holdfast notices --kind error`, and at the log of the workers.", unit="notices", subject=code,
        )  # fmt: skip


CHECKS: Final[dict[str, tuple[Check, str | None]]] = {
    "schema": (_schema, WORKER),
    "partitions_ahead": (_partitions, WORKER),
    "oldest_signal": (_signals, WORKER),
    "oldest_work": (_work, WORKER),
    "outbox_lag": (_outbox, WORKER),
    "effects_left": (_left_effects, WORKER),
    "consumers": (_consumers, WORKER),
    "dead_letters": (_letters, WORKER),
    "instances_stopped": (_stopped, WORKER),
    "notices": (_notices, WORKER),
    "workers_live": (_workers, WORKER),
    "handler_rivals": (_rivals, WORKER),
    "upkeep": (_upkeep, WORKER),
    "months_held": (_left_months, WORKER),
    "clock_regression": (_clock, WORKER),
    "oldest_transaction": (_transactions, None),
    "replication_slot": (_slots, None),
    "notify_queue": (_notifications, None),
    "dead_rows": (_bloat, None),
    "xid_age": (_freezing, None),
    "durability": (_durability, None),
}
GOOD: Final[dict[str, str]] = {
    "schema": "The schema is the one of this release.",
    "partitions_ahead": "The months ahead have their partitions and the default ones are empty.",
    "oldest_signal": "No signal and no timer waits for long.",
    "oldest_work": "No work waits for long.",
    "outbox_lag": "No effect waits for long.",
    "effects_left": "Every effect has a worker that can deliver it.",
    "consumers": "Every consumer with open facts is alive, and none is far behind.",
    "dead_letters": "There are no dead letters.",
    "instances_stopped": "No instance stands still, and none failed within the last hour.",
    "notices": "No notice of the last hour is about an error.",
    "workers_live": "Workers are alive and none was lost.",
    "handler_rivals": "No handler is offered from two places.",
    "upkeep": "The upkeep runs.",
    "months_held": "No instance holds a month that is old enough to go.",
    "clock_regression": "The clock has not gone back.",
    "oldest_transaction": "No transaction is open for long.",
    "replication_slot": "No replication slot lags.",
    "notify_queue": "The notification queue is nearly empty.",
    "dead_rows": "Dead rows are freed in time.",
    "xid_age": "Old transactions are frozen in time.",
    "durability": "Commits are durable.",
}
