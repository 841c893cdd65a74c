"""Chapter 10 of the text: conditions. The text's template functions are operators here."""

from __future__ import annotations

from typing import Any

import pytest
from shop import Shop

from holdfast import Branch
from holdfast.errors import DefinitionError

pytestmark = pytest.mark.anyio


async def taken(shop: Shop, expression: str, *inputs: Any) -> list[str]:
    """Which way each input goes."""
    flow = shop.flow().condition("check", expression, Branch().step("else", "do")).then("then", "do")
    await shop.engine.publish(flow.build())
    for value in inputs:
        assert (await shop.run(input=value)).status == "completed"
    return shop.log


# --- 10.2 functions ---------------------------------------------------------------------------------------------------


async def test_function_eq(shop: Shop) -> None:
    assert await taken(shop, "input.count == 5", {"count": 5}, {"count": 4}) == ["then", "else"]


async def test_function_ne(shop: Shop) -> None:
    expression = "input.status != 'active'"
    assert await taken(shop, expression, {"status": "gone"}, {"status": "active"}) == ["then", "else"]


async def test_function_gt(shop: Shop) -> None:
    assert await taken(shop, "input.amount > 100", {"amount": 101}, {"amount": 100}) == ["then", "else"]


async def test_function_lt(shop: Shop) -> None:
    assert await taken(shop, "input.price < 50", {"price": 49}, {"price": 50}) == ["then", "else"]


async def test_function_ge(shop: Shop) -> None:
    assert await taken(shop, "input.age >= 18", {"age": 18}, {"age": 17}) == ["then", "else"]


async def test_function_le(shop: Shop) -> None:
    assert await taken(shop, "input.count <= 10", {"count": 10}, {"count": 11}) == ["then", "else"]


# --- 10.4 execution ---------------------------------------------------------------------------------------------------


async def test_true_executes_the_next_steps(shop: Shop) -> None:
    story = await shop.run(shop.flow().condition("c", "input.n > 1").then("a", "do").then("b", "do"), {"n": 2})
    assert (story["c"], shop.log) == ("completed", ["a", "b"])


async def test_false_executes_the_else_step(shop: Shop) -> None:
    flow = shop.flow().condition("c", "input.n > 1", Branch().step("no", "do").step("no2", "do")).then("yes", "do")
    await shop.run(flow, {"n": 1})
    assert shop.log == ["no", "no2"]


async def test_false_without_an_else_ends_the_path(shop: Shop) -> None:
    """Semantics 8: at top level `otherwise` ends its path unless it rejoins."""
    story = await shop.run(shop.flow().condition("c", "input.n > 1").then("yes", "do"), {"n": 1})
    assert (story.status, shop.log) == ("completed", [])


async def test_an_else_that_rejoins_comes_back_to_the_main_path(shop: Shop) -> None:
    flow = shop.flow().condition("c", "input.n > 1", Branch().step("no", "do").rejoin()).then("yes", "do")
    await shop.run(flow, {"n": 1})
    assert shop.log == ["no", "yes"]


async def test_a_rejoin_on_the_main_path_is_where_both_ways_meet(shop: Shop) -> None:
    flow = shop.flow().condition("c", "input.n > 1", Branch().step("no", "do")).then("yes", "do").rejoin()
    await shop.engine.publish(flow.step("both", "do").build())
    for n in (2, 1):
        await shop.run(input={"n": n})
    assert shop.log == ["yes", "both", "no", "both"]


@pytest.mark.parametrize(("n", "step"), [(2, "then"), (1, "else")])
async def test_the_same_input_is_passed_to_the_selected_branch(shop: Shop, n: int, step: str) -> None:
    await taken(shop, "input.n > 1", {"n": n, "other": "kept"})
    assert shop.data[step] == {"n": n, "other": "kept"}


async def test_how_a_condition_was_decided_is_recorded(shop: Shop) -> None:
    story = await shop.run(shop.flow().condition("c", "input.n > 1").then("a", "do"), {"n": 2})
    [record] = story.step("c").closing["evaluated"]
    assert (record["variables"], record["result"]) == ({"input.n": 2}, True)


# --- 10.5 what can be read --------------------------------------------------------------------------------------------


async def test_data_access_input_data(shop: Shop) -> None:
    assert await taken(shop, "input.field_name == 'x'", {"field_name": "x"}) == ["then"]


async def test_data_access_nested_objects(shop: Shop) -> None:
    values = {"user": {"age": 18}}, {"user": {"age": 17}}, {"user": 18}, {}
    assert await taken(shop, "input.user.age >= 18", *values) == ["then", "else", "else", "else"]


async def test_data_access_the_output_of_the_step_before(shop: Shop) -> None:
    shop.answers = {"first": {"n": 7}}
    await shop.run(shop.flow().step("first", "do").condition("c", "input.n == 7").then("yes", "do"), {"n": 1})
    assert shop.log == ["first", "yes"]


async def test_data_access_the_outputs_of_a_join(shop: Shop) -> None:
    shop.answers = {"b": {"n": 7}}
    flow = shop.flow().fork("f", Branch().step("a", "do"), Branch().step("b", "do")).join("j")
    await shop.run(flow.condition("c", "input.outputs.b.n == 7 && input.completed == 2").then("yes", "do"))
    assert shop.log[-1] == "yes"


async def test_data_access_instance_id(shop: Shop) -> None:
    story = await shop.run(shop.flow().condition("c", "instance_id != input.id").then("yes", "do"), {"id": "another"})
    [record] = story.step("c").closing["evaluated"]
    assert (record["variables"]["instance_id"], record["result"], shop.log) == (story.id, True, ["yes"])


async def test_data_access_step_name(shop: Shop) -> None:
    """The step the expression stands on, whatever came before it."""
    flow = shop.flow().step("first", "do").condition("c", "step_name == 'c'", Branch().step("no", "do"))
    story = await shop.run(flow.condition("d", "step_name == 'c'", Branch().step("not_c", "do")).then("yes", "do"))
    assert shop.log == ["first", "not_c"]
    assert [story.step(name).closing["evaluated"][0]["result"] for name in ("c", "d")] == [True, False]


# --- 10.6 types -------------------------------------------------------------------------------------------------------


async def test_type_int_int64_float32_and_float64_compare_as_numbers(shop: Shop) -> None:
    values = {"n": 1}, {"n": 2**40}, {"n": 0.5}, {"n": 1.0}, {"n": 1.25}
    assert await taken(shop, "input.n >= 1", *values) == ["then", "then", "else", "then", "then"]


async def test_type_strings_match_exactly(shop: Shop) -> None:
    values = {"s": "Active"}, {"s": "active"}, {"s": "active "}, {"s": None}, {}
    assert await taken(shop, "input.s == 'Active'", *values) == ["then", "else", "else", "else", "else"]


@pytest.mark.parametrize(
    ("expression", "way"),
    [
        ("input.missing > 5", "else"), ("input.missing < 5", "then"), ("input.missing >= 0", "then"),
        ("input.missing <= 0", "then"), ("input.missing > -1", "then"), ("input.no.where < 1", "then"),
    ],
)  # fmt: skip
async def test_type_missing_fields_are_0_for_numeric_operations(shop: Shop, expression: str, way: str) -> None:
    assert await taken(shop, expression, {"other": 1}) == [way]


async def test_type_a_missing_field_equals_nothing_but_null(shop: Shop) -> None:
    """Semantics 5.5: a missing path is null; it reads 0 where numbers are ordered, not where they are compared."""
    await taken(shop, "input.missing == 0", {})
    assert shop.log == ["else"]


async def test_type_a_number_and_a_text_are_not_ordered(shop: Shop) -> None:
    assert await taken(shop, "input.n > 5", {"n": "9"}) == ["else"]


@pytest.mark.parametrize("expression", ["input.n >", "{{ gt .n 5 }}", "input.n + 1", "open('x')"])
async def test_a_bad_expression_is_an_error_at_build_or_publish_time_that_names_the_step(
    shop: Shop, expression: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        await shop.engine.publish(shop.flow().condition("check", expression).then("a", "do").build())
    assert "check" in str([refused.value, refused.value.diagnostics])
