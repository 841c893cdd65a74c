"""Expressions, files and cron expressions that were written to take long: each is answered, and soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast.doors.steps.load import load_steps
from holdfast.errors import HoldfastError
from holdfast.graph.cron import cron_problem, next_match
from holdfast.graph.expressions import compile_expression

SOON = 10.0  # seconds of the processor, on a slow machine; unbounded, most of these never end


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SOON


EXPRESSIONS = {
    "a megabyte": "input.a == " + "1" * 1_000_000,
    "brackets": "(" * 50_000 + "1 == 1" + ")" * 50_000,
    "open brackets": "(" * 50_000,
    "negations": "not " * 50_000 + "input.a == 1",
    "minus": "-" * 50_000 + "1 == 1",
    "a chain of and": " and ".join(["input.a == 1"] * 20_000),
    "alternating words": " and ".join(["input.a == 1 or input.b == 2"] * 20_000),
    "a long path": "input" + ".a" * 50_000 + " == 1",
    "many paths": " or ".join(f"input.a{n} == 1" for n in range(20_000)),
    "indexes": "input" + "[0]" * 50_000 + " == 1",
    "digits": "input.a == " + "9" * 5_000,
    "an exponent": "input.a == 1e999999999",
    "a text without an end": "input.a == '" + "x" * 200_000,
    "quotes": "input.a == " + "'" * 100_001,
    "backslashes": "input.a == '" + "\\" * 100_001 + "'",
    "spaces": " " * 500_000 + "input.a == 1",
    "a list": "input.a in [" + "1," * 100_000 + "1]",
    "lists of lists": "input.a in " + "[" * 20_000 + "]" * 20_000,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_refused_soon(name: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        compile_expression(EXPRESSIONS[name])
    assert len(refusal.value.message) < 2_000, "whoever is told can read it"


@pytest.mark.parametrize("operator", ["*", "+"])
def test_numbers_of_an_expression_do_not_grow_without_end(operator: str) -> None:
    text = f" {operator} ".join(["input.a"] * 12) + " > 0"
    try:
        expression = compile_expression(text)
    except HoldfastError:
        return
    for value in (2**63 - 1, 1.7e308, "9" * 100_000, [1] * 10_000):
        try:
            assert expression.evaluate({"input": {"a": value}}) in (True, False, None)
        except HoldfastError:
            continue


def test_large_values_are_compared_soon() -> None:
    """A hundred ways out of one step, each with ten comparisons of two megabytes that differ at their end."""
    rows = [{"a": n, "b": [1, 2, 3]} for n in range(30_000)]
    scope = {"input": {"rows": rows, "other": [*[dict(row) for row in rows[:-1]], {}], "item": {"a": -1}}}
    for text in ("input.rows == input.other", "input.item in input.rows"):
        expression = compile_expression(" || ".join([text] * 10))
        assert [expression.evaluate(scope) for _ in range(100)] == [False] * 100


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ([1], [True], False), ([1], [1.0], True), ({"a": [False]}, {"a": [0]}, False), ({"a": [0.0]}, {"a": [0]}, True),
        ([[1], {}], [[1], {}], True), ([1, 2], [1], False), ({"a": None}, {}, False), ([], {}, False),
        ([None], [False], False), (["1"], [1], False),
    ],
)  # fmt: skip
def test_values_are_compared_by_type_at_any_depth(left: object, right: object, same: bool) -> None:
    scope = {"input": {"left": left, "right": right, "all": [0, right, "x"]}}
    assert compile_expression("input.left == input.right").evaluate(scope) is same
    assert compile_expression("input.right == input.left").evaluate(scope) is same
    assert compile_expression("input.left in input.all").evaluate(scope) is same


def doubling(levels: int) -> str:
    first = "a0: &a0 [x, x]\n"
    return first + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, levels))


FILES = {
    "aliases that double": doubling(64),
    "mappings that double": "a0: &a0 {k: v}\n"
    + "".join(f"a{n}: &a{n} {{l: *a{n - 1}, r: *a{n - 1}}}\n" for n in range(1, 64)),
    "an alias of itself": "a: &a [*a]\n",
    "a merge of itself": "a: &a {<<: *a}\n",
    "lists in lists": "[" * 100_000,
    "closed lists in lists": "[" * 20_000 + "]" * 20_000,
    "objects in objects": "{a: " * 50_000,
    "dashes": "- " * 50_000 + "x",
    "questions": "? " * 50_000,
    "anchors": "".join(f"- &a{n} x\n" for n in range(30_000)),
    "aliases": "- &a x\n" + "- *a\n" * 30_000,
    "two megabytes": "a: " + "x" * 2_000_000,
    "a key of half a megabyte": "x" * 500_000 + ": 1\n",
    "digits": "workflows: " + "9" * 500_000,
    "tags": "- !!python/object/apply:os.system [id]\n" * 1_000,
    "documents": "---\n" * 50_000,
    "directives": "%YAML 1.2\n" * 10_000,
    "escapes": 'a: "' + "\\u0041" * 100_000 + '"\n',
    "ten thousand workflows": "workflows:\n" + "  - {id: a, steps: [], transitions: []}\n" * 5_000,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_soon(name: str) -> None:
    document = load_steps(FILES[name])
    assert document.problems
    assert not document.workflows
    assert len(document.problems) <= 1_000
    assert all(len(problem.message) < 2_000 for problem in document.problems[:100])


BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # an hour that comes twice
CRONS = {
    "never": "0 0 31 2 *",
    "never, by month": "0 0 31 4,6,9,11 *",
    "no step": "*/0 * * * *",
    "a long list": ",".join(["1"] * 100_000) + " * * * *",
    "long ranges": ",".join(["0-59"] * 100_000) + " * * * *",
    "fields": "* " * 100_000,
    "digits": "9" * 100_000 + " * * * *",
    "steps of steps": "*/1/1/1/1 * * * *",
    "backwards": "59-0 * * * *",
    "letters": "L" * 150,
    "nothing": "",
}


@pytest.mark.parametrize("name", CRONS)
def test_a_cron_expression_is_refused_soon(name: str) -> None:
    assert cron_problem(CRONS[name])


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 29 2 1", "59 59 23 31 12 *", "* * * * * *", "30 2 * * *", "*/99999999999 * * * *"]
)
def test_a_rare_moment_is_found_soon(text: str) -> None:
    assert cron_problem(text) is None
    found = next_match(text, BERLIN, NOW)
    assert found is not None
    assert found > NOW
