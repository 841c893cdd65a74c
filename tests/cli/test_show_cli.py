"""`holdfast show`: an instance as a tree with live states."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from cli_flows import answered, drained, prepared, refused, started, told
from cli_process import command, on_terminal, until

from holdfast import Branch, Context, Flow, Retry, SyncEngine, Undo
from holdfast.cli.reading import read_record
from holdfast.cli.render.summary import summary
from holdfast.testing.clock import shift


def line_of(text: str, name: str) -> str:
    """The line of a step, its sign included."""
    [line] = [line for line in text.splitlines() if line.lstrip("│├└─ ↶")[2:].split("  ")[0].strip() == name]
    return line


def signs(text: str, *names: str) -> str:
    return "".join(line_of(text, name).lstrip("│├└─ ↶")[0] for name in names)


def test_what_waits_says_for_what(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "waiting", {"order": "o-17"}, by="ann", key="k-1")
    text = told(holdfast_dsn, "show", id, columns=120)
    assert signs(text, "all", "again", "later", "paid", "lost", "met") == "✓◐◔◔○·"
    assert "1 of 5 calls failed · next call" in line_of(text, "again")
    assert "(in 59m" in line_of(text, "again")
    assert "until" in line_of(text, "later")
    assert "for event payment with key o-17" in line_of(text, "paid")
    assert "no worker has taken handler 'nobody' yet" in line_of(text, "lost")
    assert "\n│     ValueError: the bank is closed,\n" in text
    for fact in (id, "waiting version 1", "by ann", "k-1", '{"order": "o-17"}'):
        assert fact in text


def test_what_runs_says_which_call_it_is(holdfast_dsn: str) -> None:
    reached, opened = threading.Event(), threading.Event()

    def gate(ctx: Context, data: Any) -> None:
        reached.set()
        opened.wait(30)

    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(Flow("gated").step("gate", gate, retry=Retry(attempts=3)).then("after", "do").build())
        engine.register("gate", gate)
        with engine.worker():
            id = engine.start("gated").id
            assert reached.wait(30)
            text = told(holdfast_dsn, "show", id)
            opened.set()
    assert signs(text, "gate", "after") == "●·"
    assert "call 1 of 3" in line_of(text, "gate")


def test_a_moved_timer_is_shown_where_it_is_now(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "waiting", {"order": "o-17"})
    with SyncEngine(holdfast_dsn) as engine:
        engine.reschedule(id, "later", delay=10 * 86_400 + 60)
        engine.reschedule(id, "later", delay=20 * 86_400 + 60)
    assert "(in 20d 0h)" in line_of(told(holdfast_dsn, "show", id), "later")


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_wider_than_the_terminal(holdfast_dsn: str, columns: int) -> None:
    for flow, input in (("waiting", {"order": "o-17"}), ("order", {"amount": 500}), ("repair", {"text": "x" * 200})):
        text = told(holdfast_dsn, "show", started(holdfast_dsn, flow, input), "--events", columns=columns)
        assert max(map(len, text.splitlines())) <= columns, text


def test_a_saga_from_its_task_to_its_rollback(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "order", {"amount": 500})
    waiting = told(holdfast_dsn, "show", id)
    [task] = answered(holdfast_dsn, "tasks", "list", "--instance", id)
    assert signs(waiting, "reserve", "reserved", "big", "fulfil", "ship", "bill", "fulfilled", "approve", "notify") == (
        "✓✓✓✓✓✓✓?·"
    )
    assert "input.amount > 100 is true (input.amount = 500)" in line_of(waiting, "big")
    assert "└─ otherwise (not taken)\n   · small\n" in waiting
    assert "for manager" in line_of(waiting, "approve")
    assert f"  holdfast tasks decide {task['id']} confirmed --by NAME\n" in waiting
    assert "unship" not in waiting

    told(holdfast_dsn, "tasks", "decide", task["id"], "confirmed", "--by", "ann", "--comment", "fine by me")
    drained(holdfast_dsn)
    failed = told(holdfast_dsn, "show", id)
    assert signs(failed, "reserve", "reserved", "ship", "unship", "bill", "refund", "approve", "notify") == "✓✓↩✓!✗↩✗"
    assert "failed · undone · " in line_of(failed, "notify")
    assert "done · not undone · " in line_of(failed, "bill")
    assert "status    failed · ValueError\nrollback  back to reserved · 1 of 2 steps undone, 1 could not be\n" in failed
    assert "by ann: fine by me" in line_of(failed, "approve")
    assert "undo 1 of 2" in line_of(failed, "unship")
    assert "2 calls" in line_of(failed, "notify")
    [letter] = answered(holdfast_dsn, "dead-letters", "list", "--instance", id)
    assert f"           dead letter {letter['id']}\n" in failed
    assert f"  holdfast requeue {letter['id']} --by NAME --reason WHY\n" in failed

    told(holdfast_dsn, "requeue", letter["id"], "--by", "ann", "--reason", "open again")
    tried = told(holdfast_dsn, "show", id)
    first, second = (line for line in tried.splitlines() if " refund " in line)
    assert "~ refund" in first
    assert "○ refund" in second
    assert "undo 1 of 2" in line_of(tried, "unship")

    steps = {step["name"]: step for step in answered(holdfast_dsn, "timeline", id)["entries"] if step["kind"] == "step"}
    told_of = {name: (steps[name]["failed"], steps[name]["undo"]) for name in ("reserve", "ship", "bill", "notify")}
    assert told_of == {
        "reserve": (False, None), "ship": (False, "done"), "bill": (False, "running"), "notify": (True, "done"),
    }  # fmt: skip
    bars = told(holdfast_dsn, "timeline", id)
    assert "failed · undone" in next(line for line in bars.splitlines() if line.startswith("notify"))


def test_the_way_a_condition_took(holdfast_dsn: str) -> None:
    text = told(holdfast_dsn, "show", started(holdfast_dsn, "order", {"amount": 5}))
    assert "input.amount > 100 is false (input.amount = 5)" in line_of(text, "big")
    assert "└─ otherwise (taken)\n   ✓ small" in text
    assert signs(text, "fulfil", "ship", "bill", "fulfilled", "approve", "notify") == "······"
    assert 'result    {"amount": 5}' in text


def test_a_dead_step_and_its_repair(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "repair", {"kilos": 2})
    text = told(holdfast_dsn, "show", id)
    assert signs(text, "both", "fine", "broken", "met") == "✓✓‖·"
    assert "KeyError" in text
    assert "paused    " not in text
    [letter] = answered(holdfast_dsn, "dead-letters", "list", "--instance", id)
    told(holdfast_dsn, "requeue", letter["id"], "--by", "ann", "--reason", "typo", "--input", '{"grams": 2000}')
    drained(holdfast_dsn)
    mended = told(holdfast_dsn, "show", id)
    assert signs(mended, "broken", "met") == "✓✓"
    assert "before: KeyError" in mended
    assert " by ann: typo\n" in mended


# --- sub-flows --------------------------------------------------------------------------------------------------------


def family(dsn: str, child: str) -> str:
    """An instance that is at its sub-flow, or behind it."""
    with SyncEngine(dsn) as engine:
        prepared(engine)
        engine.publish(Flow("asking").step("before", "do").human("ask").step("after", "do").build())
        engine.publish(
            Flow("broken").step("before", "do", undo=Undo("undo", name="unbefore")).step("bad", "refuse").build()
        )
        engine.publish(Flow("fine").step("well", "do").build())
        for level in range(4):
            inner = "asking" if level == 3 else f"nested{level + 1}"
            engine.publish(Flow(f"nested{level}").sub_flow(f"into{level}", inner).build())
        engine.publish(Flow(f"with-{child}").sub_flow("payment", child).step("last", "do").build())
        id = engine.start(f"with-{child}").id
        engine.drain(timeout=30)
        return id


def child_of(dsn: str, id: str) -> str:
    [child] = answered(dsn, "list", "--parent", id)["items"]
    return child["id"]


def test_a_sub_flow_that_runs_is_drawn_below_its_step(holdfast_dsn: str) -> None:
    id = family(holdfast_dsn, "asking")
    child = child_of(holdfast_dsn, id)
    text = told(holdfast_dsn, "show", id)
    assert f"   sub-flow {child} · running · asking version 1\n      ✓ before" in text
    assert signs(text, "payment", "before", "ask", "after", "last") == "◔✓?··"
    [task] = answered(holdfast_dsn, "tasks", "list", "--instance", child)
    assert f"  holdfast tasks decide {task['id']} confirmed --by NAME\n" in text
    [told_of] = answered(holdfast_dsn, "show", id)["sub_flows"]
    assert (told_of["id"], [step["name"] for step in told_of["steps"]]) == (child, ["before", "ask"])


def test_a_sub_flow_that_failed_shows_where(holdfast_dsn: str) -> None:
    id = family(holdfast_dsn, "broken")
    text = told(holdfast_dsn, "show", id)
    assert f"   sub-flow {child_of(holdfast_dsn, id)} · failed · broken version 1\n" in text
    assert signs(text, "payment", "before", "unbefore", "bad") == "✗↩✓✗"
    assert "\n         ValueError: the bank is closed,\n" in text


def test_a_sub_flow_that_was_cancelled_with_its_parent(holdfast_dsn: str) -> None:
    id = family(holdfast_dsn, "asking")
    told(holdfast_dsn, "cancel", id, "--by", "ann", "--reason", "enough")
    drained(holdfast_dsn)
    text = told(holdfast_dsn, "show", id)
    assert f"   sub-flow {child_of(holdfast_dsn, id)} · cancelled · asking version 1\n" in text
    assert signs(text, "before", "ask", "after") == "↩–·"


def test_a_sub_flow_that_completed_keeps_its_id(holdfast_dsn: str) -> None:
    id = family(holdfast_dsn, "fine")
    child = child_of(holdfast_dsn, id)
    text = told(holdfast_dsn, "show", id)
    assert f"   sub-flow {child}\n" in text
    assert "well" not in text
    assert signs(told(holdfast_dsn, "show", id, "--all"), "payment", "well", "last") == "✓✓✓"
    assert answered(holdfast_dsn, "show", id)["sub_flows"][0]["id"] == child


def test_three_sub_flows_inside_each_other_are_drawn(holdfast_dsn: str) -> None:
    text = told(holdfast_dsn, "show", family(holdfast_dsn, "nested0"))
    assert signs(text, "payment", "into0", "into1", "into2") == "◔◔◔◔"
    assert "into3" not in text
    assert len([line for line in text.splitlines() if line.strip().startswith("sub-flow ")]) == 4
    assert max(map(len, text.splitlines())) <= 80


def test_a_sub_flow_that_is_not_there_holds_up_no_drawing(holdfast_dsn: str) -> None:
    id = family(holdfast_dsn, "nowhere")
    assert "FLOW_UNKNOWN" in told(holdfast_dsn, "show", id)
    assert answered(holdfast_dsn, "list", "--parent", id)["items"] == []


def test_of_many_sub_flows_only_some_are_drawn(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        engine.publish(Flow("asking").human("ask").build())
        branches = [Branch().sub_flow(f"s{n}", "asking") for n in range(25)]
        engine.publish(Flow("many").fork("all", *branches).join("met").build())
        id = engine.start("many").id
        engine.drain(timeout=60)
    assert told(holdfast_dsn, "show", id, "--all").count("· running · asking version 1") == 25
    assert told(holdfast_dsn, "show", id).count("· running · asking version 1") == 20
    page = answered(holdfast_dsn, "list", "--parent", id, "--limit", "20")
    rest = answered(holdfast_dsn, "list", "--parent", id, "--limit", "20", "--after", page["next"])
    assert (len(page["items"]), len(rest["items"]), rest["next"]) == (20, 5, None)
    assert answered(holdfast_dsn, "list", "--parent", id, "--status", "completed")["items"] == []


def test_who_intervened_and_why(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "waiting", {"order": "o-17"})
    told(holdfast_dsn, "pause", id, "--by", "ann", "--reason", "audit")
    paused = told(holdfast_dsn, "show", id)
    assert "suspended · audit" in paused
    assert f"  holdfast resume {id} --by NAME\n" in paused
    told(holdfast_dsn, "resume", id, "--by", "ben", "--reason", "all is well")
    told(holdfast_dsn, "abort", id, "--by", "eve", "--reason", "no longer needed")
    text = told(holdfast_dsn, "show", id)
    deeds = [line.split()[0] + line.partition(" by ")[2] for line in text.splitlines() if " by " in line[:40]]
    assert deeds == ["pausedann: audit", "resumedben: all is well", "abortedeve: no longer needed"]


def test_how_long_it_stands_as_it_does(holdfast_dsn: str) -> None:
    """Not how old it is: each of these began an hour later than the instance."""
    turning = (
        Flow("turning").step("a", "do", undo=Undo("nobody", name="b")).wait_event("c", event="go").then("d", "refuse")
    )
    ids: dict[str, str] = {}
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        engine.publish(turning.build())
        ids["suspended"] = ids["running"] = engine.start("waiting", {"order": "o-17"}).id
        ids["rolling back"] = engine.start("turning").id
        engine.drain(timeout=30)
        shift(holdfast_dsn, timedelta(hours=1))
        engine.suspend(ids["suspended"], by="ann")
        engine.signal(ids["rolling back"], "go")
        engine.drain(timeout=30)
        now = shift(holdfast_dsn, timedelta(minutes=10))
        for status in ("suspended", "rolling back"):
            assert _status(engine, ids[status], now).startswith(status)
            assert " · for 10m " in _status(engine, ids[status], now)
        engine.resume(ids["running"], by="ann")
        now = shift(holdfast_dsn, timedelta(minutes=20))
        assert _status(engine, ids["running"], now).startswith("running · for 20m ")


def _status(engine: SyncEngine, id: str, now: datetime) -> str:
    lines = summary(read_record(engine, id, events=False, now=now), 100)
    [status] = [line.plain.removeprefix("status").strip() for line in lines if line.plain.startswith("status")]
    return status


def test_the_audit_trail_and_json(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "order", {"amount": 5})
    text = told(holdfast_dsn, "show", id, "--events")
    assert text.index("instance_started") < text.index("step_completed reserve") < text.index("instance_completed")
    shown = answered(holdfast_dsn, "show", id, "--events")
    assert (shown["instance"]["status"], shown["steps"][0]["name"]) == ("completed", "reserve")
    assert shown["events"][-1]["type"] == "instance_completed"
    assert (shown["tasks"], shown["dead_letters"]) == ([], [])
    assert "events" not in answered(holdfast_dsn, "show", id)


def test_a_terminal_without_signs(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "waiting", {"order": "ö-17"})
    done = command("show", id, HOLDFAST_DSN=holdfast_dsn, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\n+ all" in done.stdout


def test_wide_forks_are_summed_up(holdfast_dsn: str) -> None:
    branches = [
        Branch().step(f"b{n}", "refuse" if n == 40 else "do", retry=Retry(attempts=2, delay=3600)) for n in range(60)
    ]
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        engine.publish(Flow("wide").fork("all", *branches).join("met", "all").build())
        id = engine.start("wide").id
        engine.drain(timeout=30)
    text = told(holdfast_dsn, "show", id)
    assert signs(text, "all", "b40", "met") == "✓◐·"
    assert "… 59 more branches: 59 completed (--all shows them)" in text
    assert " b39 " not in text
    assert " b39 " in told(holdfast_dsn, "show", id, "--all")


def test_watching_ends_with_the_instance(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "order", {"amount": 5})
    watched = command("show", id, "--watch", HOLDFAST_DSN=holdfast_dsn)
    assert (watched.returncode, watched.stdout.count("instance  ")) == (0, 1)


def test_on_a_terminal_it_is_drawn_in_colour_until_its_end(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "waiting", {"order": "o-17"})
    with on_terminal(holdfast_dsn, "show", id, "--watch") as shown:
        until(lambda: b"again" in shown.text, "the first drawing")
        told(holdfast_dsn, "abort", id, "--by", "ann")
        assert shown.process.wait(timeout=60) == 0
        until(lambda: b"aborted" in shown.text.rpartition(b"instance")[2], "the last drawing")
    assert b"\x1b[" in shown.text


def test_an_unknown_instance(holdfast_dsn: str) -> None:
    assert refused(holdfast_dsn, "show", "01a1e235-1b90-71cd-816e-7436dd66e7b7") == (4, "INSTANCE_UNKNOWN")
    assert refused(holdfast_dsn, "show", "x") == (4, "ID_INVALID")
