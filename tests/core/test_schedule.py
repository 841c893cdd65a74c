"""When a timer is due: after seconds, at a moment, by cron; with time zones, summer time and nonsense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from core_graphs import edge, end, line, program, task, timer
from core_run import Run

from holdfast.core.model.signals import TimerDue
from holdfast.core.model.timestamps import from_datetime, to_datetime
from holdfast.errors import DefinitionError
from holdfast.graph.cron import next_match

BERLIN = ZoneInfo("Europe/Berlin")


def due_of(node: Any, input: Any = None, now: str = "2026-03-01T12:00:00+00:00") -> str:
    """When the timer is due, in UTC; the reason when it failed instead."""
    run = Run(line(node))
    run.now = from_datetime(datetime.fromisoformat(now))
    run.start(input)
    if run.instance.reason is not None:
        return run.instance.reason
    [set_timer] = run.last.timers
    return to_datetime(set_timer.due).isoformat()


def cron(text: str, zone: str | None = None) -> Any:
    return timer("nap", cron=text, timezone=zone)


@pytest.mark.parametrize(
    ("text", "zone", "now", "due"),
    [
        ("0 9 * * 1-5", None, "2026-03-06T12:00:00+00:00", "2026-03-09T09:00:00+00:00"),  # Friday noon: Monday
        ("0 9 * * *", "Europe/Berlin", "2026-03-01T12:00:00+00:00", "2026-03-02T08:00:00+00:00"),
        ("0 9 * * *", "America/New_York", "2026-03-01T12:00:00+00:00", "2026-03-01T14:00:00+00:00"),
        ("0 0 L * *", None, "2026-02-10T00:00:00+00:00", "2026-02-28T00:00:00+00:00"),  # the last day of the month
        ("0 0 29 2 *", None, "2026-03-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("*/15 * * * * *", None, "2026-03-01T00:00:01+00:00", "2026-03-01T00:00:15+00:00"),  # six fields: seconds first
        ("0 12 * * *", None, "2026-03-01T12:00:00+00:00", "2026-03-02T12:00:00+00:00"),  # now is not next
        # Spring: 02:30 does not exist on 29 March in Berlin and is made up for at 03:00.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00+00:00"),
        # Autumn: 02:30 comes twice on 25 October; it fires at the first.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+00:00", "2026-10-25T00:30:00+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00"),
        # In the second of the two hours: nothing that has been may come again.
        ("45 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00+00:00", "2026-10-26T01:45:00+00:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-29T07:00:00+00:00"),  # 23 hours later
    ],
)
def test_cron_reads_the_clock_on_the_wall(text: str, zone: str | None, now: str, due: str) -> None:
    assert due_of(cron(text, zone), now=now) == due


@pytest.mark.parametrize("text", ["*/20 * * * *", "0 * * * *", "30 2 * * *", "15 1-3 * * *"])
@pytest.mark.parametrize("day", [datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)])
def test_a_series_over_a_change_of_the_clocks_only_goes_forward(text: str, day: datetime) -> None:
    moments = [day]
    while moments[-1] < day + timedelta(days=2):
        found = next_match(text, BERLIN, moments[-1])
        assert found is not None
        moments.append(found)
    gaps = {later - earlier for earlier, later in pairwise(moments[1:])}
    assert min(gaps) > timedelta()
    if text == "*/20 * * * *":
        assert gaps == {timedelta(minutes=20)}


def test_a_cron_timer_in_a_loop_waits_anew_each_lap() -> None:
    graph = program(
        [timer("nap", cron="0 * * * *"), task("a"), end()],
        [edge("nap", "a"), edge("a", "nap", when="input.again"), edge("a", "end", priority=1)],
    )
    run = Run(graph)
    run.now = from_datetime(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    run.start()
    dues = [run.last.timers[0].due]
    for _ in range(3):
        run.now = dues[-1]
        run.fire("nap", "timer").done("a", {"again": True})
        dues.append(run.last.timers[0].due)
    assert [to_datetime(due).hour for due in dues] == [13, 14, 15, 16]


def test_a_moment_that_fired_is_not_matched_again_by_a_commit_that_read_the_time_before_it() -> None:
    graph = program(
        [timer("nap", cron="0 * * * *"), end()],
        [edge("nap", "nap", when="input.again"), edge("nap", "end", priority=1)],
    )
    run = Run(graph)
    run.now = from_datetime(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    run.start({"again": True})
    due = run.last.timers[0].due
    run.now = due - 1  # another worker fired it after this commit had read the clock
    path, token = run.at("nap")
    run.apply(TimerDue(path, token.waits[0].id, "timer"))
    assert to_datetime(run.last.timers[0].due).hour == to_datetime(due).hour + 1


@pytest.mark.parametrize(
    ("value", "zone", "due"),
    [
        ("2026-07-01T09:00:00", "Europe/Berlin", "2026-07-01T07:00:00+00:00"),
        ("2026-12-01T09:00:00", "Europe/Berlin", "2026-12-01T08:00:00+00:00"),
        ("2026-07-01T09:00:00+00:00", "Europe/Berlin", "2026-07-01T09:00:00+00:00"),  # an offset wins
        ("2026-07-01T09:00:00", None, "2026-07-01T09:00:00+00:00"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00+00:00"),  # skipped by the clocks: as before them
        ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00+00:00"),  # twice: the first
        ("1999-01-01T00:00:00Z", None, "1999-01-01T00:00:00+00:00"),  # past: due at once
    ],
)
def test_a_moment_in_the_data_is_read_in_the_zone_of_the_node(value: str, zone: str | None, due: str) -> None:
    assert due_of(timer("nap", until="input.at", timezone=zone), {"at": value}) == due


@pytest.mark.parametrize(
    ("value", "due"),
    [
        (90, "2026-03-01T12:01:30+00:00"),
        (0.5, "2026-03-01T12:00:00.500000+00:00"),
        (0, "2026-03-01T12:00:00+00:00"),
        (-1, "TIMER_OUT_OF_RANGE"),
        (1e300, "TIMER_OUT_OF_RANGE"),
        (100 * 366 * 86_400, "TIMER_OUT_OF_RANGE"),
        ("90", "TIMER_NOT_A_MOMENT"),
        (True, "TIMER_NOT_A_MOMENT"),
        (None, "TIMER_NOT_A_MOMENT"),
    ],
)
def test_seconds_out_of_the_data(value: object, due: str) -> None:
    assert due_of(timer("nap", after="input.wait"), {"wait": value}) == due


@pytest.mark.parametrize("value", ["2500-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_moment_nobody_lives_to_see_fails_the_step(value: str) -> None:
    run = Run(line(timer("nap", until="input.at"))).start({"at": value})
    assert (run.status, run.instance.reason) == ("failed", "TIMER_OUT_OF_RANGE")
    assert run.last.timers == []
    assert run.row("nap").status == "failed"


def test_a_failed_timer_takes_its_error_edge() -> None:
    graph = program(
        [timer("nap", after="input.wait"), task("late"), end()],
        [edge("nap", "end"), edge("nap", "late", "error"), edge("late", "end")],
    )
    assert Run(graph).start({"wait": -5}).nodes == ["late"]


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 1e12])
def test_a_definition_with_such_a_timer_is_refused(delay: float) -> None:
    with pytest.raises(DefinitionError) as refusal:
        line(timer("nap", delay))
    assert {d.code for d in refusal.value.diagnostics} & {"BAD_DURATION", "BAD_VALUE"}
