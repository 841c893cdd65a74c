"""Chapter 11 of the text: the dead letter queue."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from shop import ALWAYS, Shop, Story, refusal

from holdfast import Branch, Context, DoNotRetry, Engine, Retry, Undo
from holdfast.testing import failpoint
from running import until

pytestmark = pytest.mark.anyio


async def dead(shop: Shop, input: Any = None) -> Story:
    """An instance in DLQ mode whose second step has failed."""
    shop.fails = {"b": ALWAYS, **shop.fails}
    flow = (
        shop.flow(dlq=True)
        .step("a", "do", undo=Undo("do", name="una"))
        .step("b", "do", undo=Undo("do", name="unb"), retry=Retry(attempts=2))
    )
    return await shop.run(flow.step("c", "do"), input)


# --- 11.2 configuration -----------------------------------------------------------------------------------------------


async def test_dlq_enabled_is_part_of_the_definition(shop: Shop) -> None:
    published = await shop.engine.publish(shop.flow(dlq=True).step("a", "do").build())
    document = await shop.engine.flow(published.name)
    assert (document.source["dlq"], document.graph.policy.on_error) == (True, "dlq")


async def test_failed_steps_go_to_the_dlq_instead_of_rollback(shop: Shop) -> None:
    story = await dead(shop)
    assert (len(story.letters), story.noted("rollback_started")) == (1, [])


async def test_compensation_handlers_are_not_executed_on_failure(shop: Shop) -> None:
    await dead(shop)
    assert shop.log == ["a", "b", "b"]


async def test_the_status_is_dlq_which_is_not_terminal(shop: Shop) -> None:
    story = await dead(shop)
    assert (story.status, story.instance.completed_at) == ("dlq", None)


async def test_active_running_steps_go_on_to_their_join(shop: Shop) -> None:
    """Semantics 8: the text freezes them; here only the failed token is dead, siblings run to their join."""
    shop.fails = {"bad": ALWAYS}
    shop.hold("slow")
    branches = Branch().step("slow", "do").step("after_slow", "do"), Branch().step("bad", "do")
    id = await shop.start(shop.flow(dlq=True).fork("f", *branches).join("j").step("end", "do"))
    await shop.begun("slow", "bad")
    story = await shop.until_status(id, "dlq")
    assert (story["slow"], story["bad"]) == ("running", "paused")
    shop.let_go("slow")
    await shop.settle()
    story = await shop.look(id)
    assert (story.status, story["after_slow"], "j" in story) == ("dlq", "completed", False)


async def test_of_a_race_only_the_last_branch_that_fails_is_paused(shop: Shop) -> None:
    """Semantics 8: who fails while another may win has just lost, also inside a fork of its own."""
    shop.fails = {"bad": ALWAYS, "worse": 1}
    shop.hold("worse")
    both = Branch().fork("g", Branch().step("bad", "do"), Branch().human("ask")).join("k")
    id = await shop.start(shop.flow(dlq=True).fork("f", both, Branch().step("worse", "do")).join("j", "any"))
    await shop.begun("bad", "worse")

    async def has_lost() -> bool:
        return (await shop.look(id))["bad"] == "failed"

    await until(has_lost)
    story = await shop.look(id)
    assert (story.status, story["ask"], story.letters) == ("running", "cancelled", [])
    shop.let_go("worse")
    story = await shop.until_status(id, "dlq")
    [letter] = story.letters
    assert (story["worse"], letter.envelope["node"]) == ("paused", "worse")
    await shop.engine.requeue(letter.id)
    assert (await shop.over(id)).status == "completed"


async def test_the_queue_holds_nothing_of_the_failed_step(shop: Shop) -> None:
    story = await dead(shop)
    async with await psycopg.AsyncConnection.connect(shop.engine.dsn) as connection:
        for table in ("work", "timers", "signals"):
            found = await connection.execute(
                f"select count(*) from holdfast.{table} where instance_id = %s", (story.id,)
            )  # fmt: skip
            assert await found.fetchone() == (0,)


# --- 11.3 behaviour ---------------------------------------------------------------------------------------------------


async def test_behaviour_1_after_all_retries_are_exhausted(shop: Shop) -> None:
    await dead(shop)
    assert shop.log.count("b") == 2


async def test_behaviour_2_the_failed_step_is_paused_not_failed(shop: Shop) -> None:
    assert (await dead(shop))["b"] == "paused"


async def test_behaviour_4_the_instance_is_dlq_and_resumable(shop: Shop) -> None:
    story = await dead(shop)
    shop.fails = {}
    await shop.engine.resume(story.id)
    await shop.settle()
    assert (await shop.look(story.id)).status == "completed"


async def test_behaviour_7_rollback_is_completely_skipped(shop: Shop) -> None:
    story = await dead(shop)
    assert (story["a"], "unb" in story, "una" in story) == ("completed", False, False)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("instance_id", lambda story, letter: letter.instance_id == story.id),
        ("workflow_id", lambda story, letter: letter.envelope["flow"] == story.instance.flow),
        (
            "step_id",
            lambda story, letter: letter.envelope["step"].replace("-", "") == story.step("b").id.replace("-", ""),
        ),
        ("step_name", lambda story, letter: letter.envelope["node"] == "b"),
        ("step_type", lambda story, letter: letter.envelope["type"] == "task"),
        ("input", lambda story, letter: letter.envelope["input"] == {"by": "a"}),
        ("error", lambda story, letter: "b does not work" in str(letter.error)),
        ("reason", lambda story, letter: letter.reason == "STEP_PAUSED"),
        ("created_at", lambda story, letter: letter.created_at is not None),
    ],
)
async def test_the_fields_of_a_record(shop: Shop, field: str, expected: Any) -> None:
    story = await dead(shop, {"amount": 5})
    [letter] = story.letters
    assert expected(story, letter), f"{field}: {letter}"


async def test_behaviour_of_an_instance_out_of_time_its_open_steps_are_paused(shop: Shop) -> None:
    """Decision 0014: the text knows no time limit of an instance; here it ends where a person can go on."""
    shop.hold("slow")
    flow = shop.flow(dlq=True, timeout=60).step("a", "do", undo=Undo("do", name="una"))
    id = await shop.start(flow.fork("f", Branch().step("slow", "do"), Branch().human("h")).join("j").step("end", "do"))
    await shop.begun("slow")
    await shop.pass_time(61)
    await until(lambda: shop.told == ["slow"])  # and obeys
    await shop.settle()
    story = await shop.until_status(id, "dlq")
    assert (story.instance.reason, story["slow"], story["h"], story["a"]) == (
        "WORKFLOW_TIMEOUT", "paused", "paused", "completed",
    )  # fmt: skip
    assert [letter.reason for letter in story.letters] == ["WORKFLOW_TIMEOUT"] * 2
    shop.let_go("slow")
    for letter in story.letters:
        await shop.engine.requeue(letter.id)
    await shop.settle()
    await shop.engine.decide(await shop.task(id), by="ann", decision="confirmed")
    story = await shop.over(id)
    assert (story.status, shop.log) == ("completed", ["a", "slow", "slow", "end"])


@pytest.mark.parametrize("then", ["resume", "cancel"])
async def test_behaviour_of_an_instance_out_of_time_what_succeeds_late_has_happened(shop: Shop, then: str) -> None:
    shop.hold("slow")
    flow = shop.flow(dlq=True, timeout=60).step("a", "do", undo=Undo("do", name="una"))
    id = await shop.start(flow.step("slow", "do_plainly", undo=Undo("do", name="unslow")).step("end", "do"))
    await shop.begun("slow")
    await shop.pass_time(61)
    story = await shop.until_status(id, "dlq")
    assert (shop.told, story["slow"], story["end"]) == (["slow"], "completed", "paused"), "told, and done all the same"
    assert [(letter.envelope["node"], letter.reason) for letter in story.letters] == [("end", "WORKFLOW_TIMEOUT")]
    if then == "resume":
        await shop.engine.resume(id)
        story = await shop.over(id)
        assert (story.status, shop.log) == ("completed", ["a", "slow", "end"])
    else:
        await shop.engine.cancel(id, reason="too late")
        story = await shop.over(id)
        assert (story.status, shop.log) == ("cancelled", ["a", "slow", "unslow", "una"])


# --- 11.4 compensations that fail -------------------------------------------------------------------------------------


async def broken(shop: Shop) -> Story:
    """The compensation of the step before the failed one is out of calls."""
    shop.fails = {"ship": ALWAYS, "refund": ALWAYS}
    flow = shop.flow().step("first", "do", undo=Undo("do", name="unfirst"))
    return await shop.run(
        flow.step("charge", "do", undo=Undo("do", name="refund", retry=Retry(attempts=0))).step("ship", "do")
    )


async def test_a_compensation_out_of_calls_leaves_a_record(shop: Shop) -> None:
    story = await broken(shop)
    [letter] = story.letters
    assert (letter.source, letter.reason) == ("compensation", "COMPENSATION_EXHAUSTED")
    assert letter.envelope["input"] == {"input": {"by": "first"}, "output": {"by": "charge"}}


async def test_the_chain_goes_on_behind_it_and_the_instance_fails(shop: Shop) -> None:
    """Semantics 8: the chain continues backwards."""
    story = await broken(shop)
    assert (story.status, story["charge"], story["first"]) == ("failed", "failed", "rolled_back")
    assert shop.log == ["first", "charge", "ship", "refund", "unfirst"]


async def test_a_dead_compensation_runs_again_while_the_instance_stays_failed(shop: Shop) -> None:
    """Semantics 8."""
    story = await broken(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    story = await shop.look(story.id)
    assert (story.status, story["charge"], story.runs("refund")) == (
        "failed",
        "rolled_back",
        ["superseded", "completed"],
    )
    assert (story.letters, shop.log[-1]) == ([], "refund")


async def test_a_dead_compensation_that_fails_again_has_a_new_record(shop: Shop) -> None:
    story = await broken(shop)
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    again = await shop.look(story.id)
    assert (again["charge"], len(again.letters), again.letters[0].id != story.letters[0].id) == ("failed", 1, True)


async def test_a_dead_compensation_takes_a_new_input(shop: Shop) -> None:
    story = await broken(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id, input={"by": "hand"})
    await shop.settle()
    assert shop.data["refund"] == {"by": "hand"}


# --- 11.5 requeue -----------------------------------------------------------------------------------------------------


async def test_requeue_1_the_step_is_reset(shop: Shop) -> None:
    """Semantics 4: error, count and times are those of a new row; the old one keeps its own."""
    story = await dead(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    story = await shop.look(story.id)
    [old, new] = [row for row in story.rows if row.name == "b"]
    assert (old.status, old.attempts, new.status, new.attempts, new.run, new.error) == (
        "superseded", 2, "completed", 1, 1, None,
    )  # fmt: skip


async def test_requeue_2_with_the_original_input(shop: Shop) -> None:
    story = await dead(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    assert shop.data["b"] == {"by": "a"}
    assert len(set(shop.keys["b"])) == 1


async def test_requeue_2_with_modified_input(shop: Shop) -> None:
    """Semantics 4: the old row keeps its input; the outside world gets a new key."""
    story = await dead(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id, input={"status": "fixed"})
    await shop.settle()
    story = await shop.look(story.id)
    assert [row.input for row in story.rows if row.name == "b"] == [{"by": "a"}, {"status": "fixed"}]
    assert (shop.data["b"], len(set(shop.keys["b"]))) == ({"status": "fixed"}, 2)


async def test_requeue_3_the_step_is_enqueued_and_the_flow_goes_on(shop: Shop) -> None:
    story = await dead(shop)
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    assert (await shop.look(story.id)).status == "completed"
    assert shop.log == ["a", "b", "b", "b", "c"]


async def test_requeue_4_the_instance_goes_from_dlq_to_running(shop: Shop) -> None:
    story = await dead(shop)
    shop.hold("b")
    await shop.engine.requeue(story.letters[0].id)
    assert (await shop.look(story.id)).status == "running"
    shop.fails = {}
    shop.let_go("b")
    await shop.over(story.id)


async def test_requeue_5_the_join_goes_on_once_when_its_siblings_had_finished(shop: Shop) -> None:
    shop.fails = {"bad": 1}
    flow = shop.flow(dlq=True).fork("f", Branch().step("good", "do"), Branch().step("bad", "do")).join("j")
    story = await shop.run(flow.step("after", "do"))
    assert (story.status, story["good"]) == ("dlq", "completed")
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    story = await shop.look(story.id)
    assert (story.status, story.runs("j"), shop.log.count("after")) == ("completed", ["completed"], 1)
    assert set(shop.data["after"]["outputs"]) == {"good", "bad"}


async def test_requeue_5_the_join_goes_on_once_when_a_sibling_still_runs(shop: Shop) -> None:
    shop.fails = {"bad": 1}
    shop.hold("slow")
    flow = shop.flow(dlq=True).fork("f", Branch().step("slow", "do"), Branch().step("bad", "do")).join("j")
    id = await shop.start(flow.step("after", "do"))
    story = await shop.until_status(id, "dlq")
    await shop.begun("slow")
    await shop.engine.requeue(story.letters[0].id, input={"n": 1})
    await shop.until_status(id, "running")
    shop.let_go("slow")
    story = await shop.over(id)
    assert (story.status, story.runs("j"), shop.log.count("after")) == ("completed", ["completed"], 1)


async def test_the_status_leaves_dlq_when_no_dead_token_remains(shop: Shop) -> None:
    """Semantics 8."""
    shop.fails = {"bad": 1, "worse": 1}
    story = await shop.run(
        shop.flow(dlq=True).fork("f", Branch().step("bad", "do"), Branch().step("worse", "do")).join("j")
    )
    first, second = (letter.id for letter in story.letters)
    await shop.engine.requeue(first)
    await shop.settle()
    assert (await shop.look(story.id)).status == "dlq"
    await shop.engine.requeue(second)
    await shop.settle()
    assert (await shop.look(story.id)).status == "completed"


async def test_requeue_6_the_record_is_settled_and_cannot_be_used_twice(shop: Shop) -> None:
    """Semantics 4 keeps what happened: the record is not deleted but resolved, with who and why."""
    story = await dead(shop)
    shop.fails = {}
    letter = await shop.engine.requeue(story.letters[0].id, by="ops", reason="gateway is back")
    assert (letter.resolution, letter.resolved_by, letter.resolved_why) == ("replayed", "ops", "gateway is back")
    assert await shop.engine.dead_letters(story.id) == []
    assert await refusal(shop.engine.requeue(letter.id)) == "DEAD_LETTER_RESOLVED"
    await shop.settle()
    assert shop.log.count("b") == 3


async def test_a_pause_leaves_the_record_as_it_is(shop: Shop) -> None:
    story = await dead(shop)
    await shop.engine.suspend(story.id)
    assert await refusal(shop.engine.requeue(story.letters[0].id)) == "INSTANCE_SUSPENDED"
    await shop.engine.resume(story.id)
    await shop.settle()
    again = await shop.look(story.id)
    assert (again.status, again.instance.reason, again["b"]) == ("dlq", story.instance.reason, "paused")
    assert ([letter.id for letter in again.letters], shop.log) == ([story.letters[0].id], ["a", "b", "b"])
    shop.fails = {}
    await shop.engine.requeue(story.letters[0].id, input={"status": "fixed"})
    await shop.settle()
    assert ((await shop.look(story.id)).status, shop.data["b"]) == ("completed", {"status": "fixed"})


async def test_requeue_of_many_at_once(shop: Shop) -> None:
    shop.fails = {"b": 3}
    flow = shop.flow(dlq=True).step("b", "do")
    ids = [(await shop.run(flow if n == 0 else None)).id for n in range(3)]
    letters = [letter.id for id in ids for letter in await shop.engine.dead_letters(id)]
    done = await shop.engine.replay_dead_letters(letters, by="ops")
    await shop.settle()
    assert (done.count, done.left) == (3, [])
    assert {(await shop.look(id)).status for id in ids} == {"completed"}


async def test_a_step_that_fails_again_has_a_new_record(shop: Shop) -> None:
    story = await dead(shop)
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    again = await shop.look(story.id)
    assert (again.status, again.runs("b"), len(again.letters)) == ("dlq", ["superseded", "paused"], 1)


# --- 11.6 use cases ---------------------------------------------------------------------------------------------------


async def again(shop: Shop, story: Story, **options: Any) -> Story:
    """The one letter of an instance is put back."""
    [letter] = story.letters
    await shop.engine.requeue(letter.id, by="ops", **options)
    await shop.settle()
    return await shop.look(story.id)


async def test_use_case_transient_failures(shop: Shop) -> None:
    """The gateway does not answer, and later it does: nothing needs to be changed."""
    shop.raises = {"pay": TimeoutError("the gateway does not answer")}
    story = await shop.run(
        shop.flow(dlq=True).step("pay", "do", retry=Retry(attempts=3)).step("ship", "do"), {"amount": 5}
    )
    assert (story.status, story.letters[0].error["code"], shop.log) == ("dlq", "TimeoutError", ["pay"] * 3)
    shop.raises = {}
    story = await again(shop, story)
    assert (story.status, shop.data["pay"], shop.log[3:]) == ("completed", {"amount": 5}, ["pay", "ship"])
    assert len(set(shop.keys["pay"])) == 1  # the gateway can tell that all four calls meant one payment


async def test_use_case_data_issues(shop: Shop) -> None:
    """An invalid customer is corrected by hand, and the flow goes on with the correct one."""

    async def charge(ctx: Context, data: Any) -> Any:
        return {"customer": int(data["customer"])}

    shop.engine.register(f"{shop.name}.charge", charge)
    flow = shop.flow(dlq=True).step("charge", f"{shop.name}.charge").step("ship", "do")
    story = await shop.run(flow, {"customer": "?"})
    assert (story.status, story.letters[0].envelope["input"]) == ("dlq", {"customer": "?"})
    story = await again(shop, story, input={"customer": "17"})
    assert (story.status, shop.data["ship"]) == ("completed", {"customer": 17})


async def test_use_case_infrastructure_failures(shop: Shop) -> None:
    """No connection is free for a while, and everything that came meanwhile is put back at once."""
    shop.raises = {"save": ConnectionError("too many connections")}
    flow = shop.flow(dlq=True).step("save", "do").step("tell", "do")
    stories = [await shop.run(flow if n == 0 else None) for n in range(3)]
    assert {story.status for story in stories} == {"dlq"}
    shop.raises = {}
    done = await shop.engine.replay_dead_letters([story.letters[0].id for story in stories], by="ops")
    await shop.settle()
    assert (done.count, {(await shop.look(story.id)).status for story in stories}) == (3, {"completed"})


async def test_use_case_rate_limiting(shop: Shop) -> None:
    """The other side refuses for today: further calls would only make it worse, so a person says when to go on."""
    shop.raises = {"call": DoNotRetry("no calls are left today")}
    story = await shop.run(shop.flow(dlq=True).step("call", "do", retry=Retry(attempts=5, delay=1)))
    assert (story.status, story.letters[0].error["message"], shop.log) == ("dlq", "no calls are left today", ["call"])
    await shop.pass_time(86_400)
    assert shop.log == ["call"]
    shop.raises = {}
    story = await again(shop, story, reason="the limit was raised")
    assert (story.status, shop.log) == ("completed", ["call"] * 2)


async def test_use_case_business_logic_errors(shop: Shop) -> None:
    """The code is wrong; with its next release the step succeeds, and what is done already is not done again."""
    handler = f"{shop.name}.price"

    async def wrong(ctx: Context, data: Any) -> Any:
        return {"price": data["net"] * 1.19}

    async def right(ctx: Context, data: Any) -> Any:
        return {"price": data["amount"] * 2}

    shop.answers = {"a": {"amount": 3}}
    flow = shop.flow(dlq=True).step("a", "do").step("price", handler).step("bill", "do")
    async with Engine(shop.engine.dsn) as release:
        release.register(handler, wrong)
        async with release.worker():
            story = await shop.until_status(await shop.start(flow), "dlq")
    assert story.letters[0].error["code"] == "KeyError"
    async with Engine(shop.engine.dsn) as release:
        release.register(handler, right)
        async with release.worker():
            await shop.engine.requeue(story.letters[0].id, by="ops")
            story = await shop.over(story.id)
    assert (story.status, shop.data["bill"], shop.log) == ("completed", {"price": 6}, ["a", "bill"])


async def test_use_case_compensation_failures(shop: Shop) -> None:
    """Without DLQ mode: what could not be taken back is kept for a person, who has it taken back later."""
    story = await broken(shop)
    assert (story.status, story["charge"], story.letters[0].reason) == ("failed", "failed", "COMPENSATION_EXHAUSTED")
    shop.fails = {}
    story = await again(shop, story, reason="the bank is open again")
    assert (story.status, story["charge"], story.letters) == ("failed", "rolled_back", [])
    assert shop.data["refund"] == {"input": {"by": "first"}, "output": {"by": "charge"}}


# --- many at once: all of an instance, or none ------------------------------------------------------------------------


async def two_dead(shop: Shop) -> Story:
    """An instance in DLQ mode with two dead branches."""
    shop.fails = {"bad": 1, "worse": 1, **shop.fails}
    branches = Branch().step("bad", "do"), Branch().step("worse", "do")
    return await shop.run(shop.flow(dlq=True).fork("f", *branches).join("j").step("after", "do"))


async def test_all_letters_of_an_instance_are_one_commit(shop: Shop) -> None:
    story = await two_dead(shop)
    done = await shop.engine.replay_dead_letters([letter.id for letter in story.letters], by="ops")
    await shop.settle()
    story = await shop.look(story.id)
    assert (done.count, done.left, done.refusals) == (2, [], {})
    assert len({event.version for event in story.noted("step_requeued")}) == 1
    assert (story.status, story.runs("j"), shop.log.count("after")) == ("completed", ["completed"], 1)


@pytest.mark.parametrize("after", [0, 1])
async def test_a_fault_between_two_letters_leaves_all_or_none(shop: Shop, after: int) -> None:
    """The statement that settles letters fails: the first one of its kind, or the second."""
    story = await two_dead(shop)
    ids = [letter.id for letter in story.letters]
    with failpoint("statement.before.resolve_letters", "error", after=after, sqlstate="42501"):
        done = await shop.engine.replay_dead_letters(ids, by="ops")
    still = {letter.id for letter in await shop.engine.dead_letters(story.id)}
    if after:
        assert (still, done.left) == (set(), [])
    else:
        assert (still, done.ids) == (set(ids), [])
        assert {refusal.code for refusal in done.refusals.values()} == {"STORE_REFUSED"}
        assert (await shop.look(story.id)).runs("bad") == ["paused"]


async def test_many_with_a_new_input_each(shop: Shop) -> None:
    story = await two_dead(shop)
    of = {letter.envelope["node"]: letter.id for letter in story.letters}
    done = await shop.engine.replay_dead_letters(of.values(), inputs={of["bad"]: {"n": 1}, of["worse"]: None})
    await shop.settle()
    assert (done.count, shop.data["bad"], shop.data["worse"]) == (2, {"n": 1}, {})
    assert (await shop.look(story.id)).status == "completed"


async def test_an_input_that_fits_nothing_is_refused_before_anything_is_done(shop: Shop) -> None:
    story = await two_dead(shop)
    first, second = (letter.id for letter in story.letters)
    assert await refusal(shop.engine.replay_dead_letters([first], inputs={second: {}})) == "DEAD_LETTER_INPUT"
    assert await refusal(shop.engine.replay_dead_letters([first], inputs={first: object()})) == "PAYLOAD_TYPE"
    assert len(await shop.engine.dead_letters(story.id)) == 2


async def test_what_cannot_be_put_back_is_told_letter_by_letter(shop: Shop) -> None:
    """The others of the same instance, and other instances, go on all the same."""
    story, shop.fails = await two_dead(shop), {"bad": 1, "worse": 1}
    other = await shop.run(None)
    first, second = (letter.id for letter in story.letters)
    paused = [letter.id for letter in other.letters]
    await shop.engine.suspend(other.id)
    await shop.engine.requeue(first)
    done = await shop.engine.replay_dead_letters([first, second, *paused], by="ops")
    assert (done.ids, sorted(done.left)) == ([second], sorted(paused))
    assert {id: refusal.code for id, refusal in done.refusals.items()} == {
        first: "DEAD_LETTER_RESOLVED",
        **dict.fromkeys(paused, "INSTANCE_SUSPENDED"),
    }


async def test_a_letter_that_goes_stale_meanwhile_holds_up_no_other(shop: Shop) -> None:
    story = await two_dead(shop)
    first, second = (letter.id for letter in story.letters)
    _, done = await asyncio.gather(shop.engine.requeue(first), shop.engine.replay_dead_letters([first, second]))
    assert done.ids == [second]
    assert done.refusals[first].code in ("DEAD_LETTER_RESOLVED", "DEAD_LETTER_STALE")


async def test_two_dead_compensations_are_put_back_at_once(shop: Shop) -> None:
    shop.fails = {"ship": ALWAYS, "refund": ALWAYS, "release": ALWAYS}
    flow = shop.flow().step("reserve", "do", undo=Undo("do", name="release", retry=Retry(attempts=0)))
    story = await shop.run(
        flow.step("charge", "do", undo=Undo("do", name="refund", retry=Retry(attempts=0))).step("ship", "do")
    )
    shop.fails = {}
    done = await shop.engine.replay_dead_letters([letter.id for letter in story.letters], by="ops")
    await shop.settle()
    story = await shop.look(story.id)
    assert (done.count, done.left, story.letters) == (2, [], [])
    assert (story.status, story["charge"], story["reserve"]) == ("failed", "rolled_back", "rolled_back")
    assert shop.log[-2:] == ["refund", "release"]
