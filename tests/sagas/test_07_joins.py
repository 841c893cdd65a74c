"""Chapter 7 of the text: parallel, fork and join, conditions inside of branches."""

from __future__ import annotations

from typing import Any

import pytest
from shop import ALWAYS, Shop

from holdfast import Branch, Context, Engine, Flow, Undo
from holdfast.errors import DefinitionError
from running import until

pytestmark = pytest.mark.anyio


def step(name: str, **options: Any) -> Branch:
    return Branch().step(name, "do", **options)


# --- 7.1 parallel -----------------------------------------------------------------------------------------------------


async def test_parallel_runs_its_tasks_at_the_same_time(shop: Shop) -> None:
    shop.hold("task1", "task2")
    id = await shop.start(shop.flow().parallel("group", ("task1", "do"), ("task2", "do")).step("after", "do"))
    await shop.begun("task1", "task2")
    assert (await shop.look(id)).status == "running"
    shop.let_go("task1", "task2")
    assert (await shop.over(id)).status == "completed"


async def test_all_sub_tasks_of_parallel_must_complete_before_it_continues(shop: Shop) -> None:
    shop.hold("task1")
    id = await shop.start(shop.flow().parallel("group", ("task1", "do"), ("task2", "do")).step("after", "do"))
    await shop.begun("task1", "task2")
    assert "after" not in shop.log
    shop.let_go("task1")
    await shop.over(id)
    assert shop.log[-1] == "after"


# --- 7.2 fork and join ------------------------------------------------------------------------------------------------


async def test_join_all_waits_for_all_branches(shop: Shop) -> None:
    shop.hold("a", "b")
    id = await shop.start(shop.flow().fork("f", step("a"), step("b")).join("j", "all").step("after", "do"))
    await shop.begun("a", "b")
    shop.let_go("a")
    assert "after" not in shop.log
    shop.let_go("b")
    assert (await shop.over(id)).status == "completed"
    assert shop.log[-1] == "after"


async def test_join_any_proceeds_after_the_first_completes(shop: Shop) -> None:
    shop.hold("b")
    id = await shop.start(shop.flow().fork("f", step("a"), step("b")).join("j", "any").step("after", "do"))
    story = await shop.over(id)
    assert (story.status, story["a"], story["b"], shop.log[-1]) == ("completed", "completed", "cancelled", "after")


async def test_the_join_passes_on_the_outputs_of_its_branches(shop: Shop) -> None:
    """Semantics 5.4: in declaration order, by the last step of each branch."""
    flow = shop.flow().fork("f", step("a").step("a2", "do"), step("b")).join("j").step("after", "do")
    await shop.run(flow)
    assert shop.data["after"] == {
        "strategy": "all", "status": "completed", "completed": 2, "failed": 0,
        "outputs": {"a2": {"by": "a2"}, "b": {"by": "b"}},
    }  # fmt: skip
    assert list(shop.data["after"]["outputs"]) == ["a2", "b"]


async def test_join_any_passes_on_the_winner_only(shop: Shop) -> None:
    flow = shop.flow().fork("f", step("a", delay=3600), step("b")).join("j", "any").step("after", "do")
    await shop.run(flow)
    assert shop.data["after"]["outputs"] == {"b": {"by": "b"}}


async def test_a_failed_branch_of_join_any_just_loses(shop: Shop) -> None:
    """Semantics 8."""
    shop.fails = {"bad": ALWAYS}
    shop.hold("good")
    id = await shop.start(shop.flow().fork("f", step("bad"), step("good")).join("j", "any").step("after", "do"))
    await shop.begun("bad", "good")
    shop.let_go("good")
    story = await shop.over(id)
    assert (story.status, story["bad"], shop.data["after"]["failed"]) == ("completed", "failed", 1)


async def test_a_branch_of_join_any_that_fails_inside_its_own_fork_just_loses(shop: Shop) -> None:
    """Semantics 8, however deep the failure is: who stood beside it is told, and taken back should all fail later."""
    shop.fails = {"bad": ALWAYS, "after": ALWAYS}
    shop.hold("good", "beside")
    both = (
        Branch()
        .fork("g", step("bad"), Branch().step("beside", "do_plainly", undo=Undo("do", name="unbeside")))
        .join("k")
    )
    id = await shop.start(shop.flow().fork("f", both, step("good")).join("j", "any").step("after", "do"))
    await shop.begun("bad", "good", "beside")
    await until(lambda: "beside" in shop.told)
    shop.let_go("good")
    story = await shop.over(id)
    assert shop.data["after"]["outputs"] == {"good": {"by": "good"}}
    assert (story["bad"], story["beside"], "k" in story) == ("rolled_back", "cancelled", False)
    assert shop.log[-1] == "unbeside"


async def test_join_any_fails_when_all_its_branches_have_failed(shop: Shop) -> None:
    """Semantics 8: the join itself fails, and what came before is taken back."""
    shop.fails = {"bad": ALWAYS, "worse": ALWAYS}
    flow = shop.flow().step("first", "do", undo=Undo("do", name="unfirst"))
    story = await shop.run(flow.fork("f", step("bad"), step("worse")).join("j", "any").step("after", "do"))
    assert (story.status, story["first"], "after" in story) == ("failed", "rolled_back", False)
    assert shop.log[-1] == "unfirst"


async def test_nested_forks_join_from_the_inside_out(shop: Shop) -> None:
    inner = step("a").fork("g", step("x"), step("y")).join("k").step("az", "do")
    story = await shop.run(shop.flow().fork("f", inner, step("b")).join("j").step("after", "do"))
    assert story.status == "completed"
    assert shop.data["az"]["outputs"].keys() == {"x", "y"}
    assert shop.data["after"]["outputs"].keys() == {"az", "b"}


async def test_late_work_of_a_loser_is_kept_as_evidence_and_compensated(shop: Shop) -> None:
    """Semantics 4: the loser's handler may still succeed; if the instance fails later, that is undone as well."""
    shop.hold("loser", "after")
    flow = (
        shop.flow()
        .fork("f", step("winner"), Branch().step("loser", "do_plainly", undo=Undo("do", name="unloser")))
        .join("j", "any")
        .step("after", "do")
    )
    shop.fails = {"after": ALWAYS}
    id = await shop.start(flow)
    await shop.begun("loser", "after")
    shop.let_go("after")
    story = await shop.over(id)
    assert (story.status, story["loser"], shop.log[-1]) == ("failed", "cancelled", "unloser")
    assert shop.told == ["loser"]


async def test_a_race_leaves_the_queued_work_of_other_branches_alone(shop: Shop) -> None:
    """Whoever decides the race takes back what its losers have queued, and nothing else."""
    shop.hold("loser", "winner")
    race = Branch().fork("race", step("winner"), step("loser", undo=Undo("do", name="unloser"))).join("won", "any")
    queued = Branch().step("elsewhere", f"{shop.name}.elsewhere")
    id = await shop.start(shop.flow().fork("f", race, queued).join("j").step("after", "do"))
    await shop.begun("loser", "winner")
    shop.let_go("winner")
    await until(lambda: "loser" in shop.told)
    async with Engine(shop.engine.dsn) as service:

        async def elsewhere(ctx: Context, data: Any) -> str:
            return "done"

        service.register(f"{shop.name}.elsewhere", elsewhere)
        async with service.worker():
            story = await shop.over(id)
    assert (story.status, story["loser"], shop.log[-1]) == ("completed", "cancelled", "after")


# --- 7.2.1 conditions in branches -------------------------------------------------------------------------------------


def _two_choices(shop: Shop) -> Flow:
    first = step("branch1_step1").condition("branch1_condition", "input.count > 5", step("branch1_else"))
    second = step("branch2_step1").condition("branch2_condition", "input.count < 3", step("branch2_else"))
    branches = first.then("branch1_next", "do"), second.then("branch2_next", "do")
    return shop.flow().fork("parallel_branch", *branches).join("join").step("after", "do")


@pytest.mark.parametrize(
    ("count", "taken"),
    [
        (9, {"branch1_next", "branch2_else"}),
        (1, {"branch1_else", "branch2_next"}),
        (4, {"branch1_else", "branch2_else"}),
    ],
)
async def test_the_join_waits_for_the_terminal_step_that_was_really_executed(
    shop: Shop, count: int, taken: set[str]
) -> None:
    shop.answers = {"branch1_step1": {"count": count}, "branch2_step1": {"count": count}}
    story = await shop.run(_two_choices(shop))
    assert (story.status, set(shop.data["after"]["outputs"])) == ("completed", taken)


async def test_the_text_s_example_replaces_each_virtual_step_with_the_step_that_ran(shop: Shop) -> None:
    """First branch `then`, second branch `else`; the join is not ready before both are through."""
    shop.answers = {"branch1_step1": {"count": 9}, "branch2_step1": {"count": 9}}
    shop.hold("branch2_else")
    id = await shop.start(_two_choices(shop))
    await shop.begun("branch1_next", "branch2_else")
    assert "after" not in shop.log
    shop.let_go("branch2_else")
    await shop.over(id)
    assert set(shop.data["after"]["outputs"]) == {"branch1_next", "branch2_else"}


async def test_several_conditions_in_one_branch_all_end_at_its_join(shop: Shop) -> None:
    """The text considers only the first condition of a branch; here a join waits for branches, so all count."""
    branch = (
        Branch()
        .condition("c1", "input.n > 1", step("no1"))
        .condition("c2", "input.n > 2", step("no2"))
        .then("yes", "do")
    )
    flow = shop.flow().fork("f", branch, step("other")).join("j").step("after", "do")
    taken: list[list[str]] = []
    await shop.engine.publish(flow.build())
    for n in (1, 2, 3):
        await shop.run(input={"n": n})
        taken.append(list(shop.data["after"]["outputs"]))
    assert taken == [["no1", "other"], ["no2", "other"], ["yes", "other"]]


async def test_nested_conditions_end_at_the_join_too(shop: Shop) -> None:
    otherwise = Branch().condition("inner", "input.n > 1", step("neither")).then("second", "do")
    branch = Branch().condition("outer", "input.n > 2", otherwise).then("first", "do")
    await shop.engine.publish(shop.flow().fork("f", branch, step("other")).join("j").step("after", "do").build())
    taken: list[str] = []
    for n in (3, 2, 1):
        await shop.run(input={"n": n})
        taken.append(next(iter(shop.data["after"]["outputs"])))
    assert taken == ["first", "second", "neither"]


async def test_a_false_condition_without_otherwise_ends_its_branch_at_the_join(shop: Shop) -> None:
    branch = Branch().condition("c", "input.n > 1").then("yes", "do")
    story = await shop.run(shop.flow().fork("f", branch, step("other")).join("j").step("after", "do"), {"n": 0})
    assert (story.status, "yes" in story, shop.log[-1]) == ("completed", False, "after")
    assert shop.data["after"]["outputs"] == {"c": {"n": 0}, "other": {"by": "other"}}


async def test_a_step_that_fails_in_a_condition_branch_is_on_the_join_s_failed_list(shop: Shop) -> None:
    shop.fails = {"no": ALWAYS}
    shop.hold("other")
    branch = Branch().condition("c", "input.n > 1", step("no")).then("yes", "do")
    id = await shop.start(shop.flow().fork("f", branch, step("other")).join("j", "any").step("after", "do"), {"n": 0})
    await shop.begun("no", "other")
    shop.let_go("other")
    assert (await shop.over(id)).status == "completed"
    assert (shop.data["after"]["failed"], shop.data["after"]["outputs"]) == (1, {"other": {"by": "other"}})


async def test_join_all_fails_if_any_step_failed_in_a_condition_branch(shop: Shop) -> None:
    shop.fails = {"no": ALWAYS}
    branch = Branch().condition("c", "input.n > 1", step("no")).then("yes", "do")
    story = await shop.run(shop.flow().fork("f", branch, step("other")).join("j").step("after", "do"), {"n": 0})
    assert (story.status, story["other"], "j" in story, "after" in shop.log) == ("failed", "rolled_back", False, False)


@pytest.mark.parametrize("name", ["cond#mine", "_root_"])
async def test_step_names_cannot_start_with_what_is_reserved_for_virtual_steps(shop: Shop, name: str) -> None:
    with pytest.raises(DefinitionError, match="reserved"):
        shop.flow().step(name, "do").build()


async def test_virtual_steps_are_ignored_in_validation(shop: Shop) -> None:
    published = await shop.engine.publish(_two_choices(shop).build())
    assert not any(node.startswith("cond#") for node in (await shop.engine.flow(published.name)).graph.nodes)
