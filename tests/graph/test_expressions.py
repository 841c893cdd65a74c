"""The expression language: what it says, what it refuses, what it costs."""

from __future__ import annotations

import timeit
from pathlib import Path
from typing import Any

import pytest
from expression_corpus import CONFUSED, DECLARED, HOSTILE
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import ExpressionError
from holdfast.graph.expressions import Expression, compile_expression

DOCS = Path(__file__).parents[2] / "docs" / "expressions.md"
NOW = "2026-03-01T12:00:00.000000+00:00"
SCOPE: dict[str, Any] = {
    "input": {
        "amount": 150,
        "ratio": 1.0,
        "kind": "digital",
        "flag": True,
        "one": 1,
        "none": None,
        "tags": ["a", "b", 1, [1], {"x": 1}],
        "address": {"city": {"name": "Oslo"}},
        "due": "2026-03-01T14:00:00+02:00",
        "later": "2026-03-02",
        "in": "keyword",
        "quote": 'it\'s "so"\\\n',
    },
    "context": {"count": 3},
    "now": NOW,
}


def value_of(text: str, **options: Any) -> Any:
    return compile_expression(text, result="any", **options).evaluate(SCOPE)


TRUE = [
    "input.amount > 100 && input.kind == 'digital'",
    "input.amount >= 150 && input.amount <= 150 && !(input.amount < 150)",
    "input.amount == 150.0",
    "input.one == input.ratio",
    "input.kind != 'paper'",
    'input.kind == "digital"',
    "input.kind < 'paper'",
    "input.kind in ['paper', 'digital']",
    "input.tags contains 'a'",
    "input.tags contains input.one",
    "input.kind contains 'git'",
    "input.kind contains ''",
    "['a', null] contains input.none",
    "input.address.city.name == 'Oslo'",
    "input.flag",
    "input.flag == true",
    "input.in == 'keyword'",
    "input.quote == 'it\\'s \"so\"\\\\\\n'",
    "workflow.count == context.count",
    "input.none == null",
    "input.missing == null",
    "input.kind.deeper == null",
    "input.tags.length == null",
    "!input.missing",
    "!input.amount",
    "!!input.flag",
    "input.missing != 5",
    "true || input.missing",
    "false || input.missing || input.flag",
    "now == input.due",
    "now != input.later",
    "now < input.later",
    "input.later > now",
    "now > '2026-03-01T11:59:59Z'",
    "now in [null, '2026-03-01T12:00:00Z']",
    "-1 < 0 && 1e3 == 1000 && 0.5 < 1",
    "9007199254740992 == 9007199254740992",
    "\n input.flag\t&&\r\n true ",
]

FALSE = [
    "input.amount > 150",
    "input.one == input.flag",
    "input.tags contains input.flag",
    "input.one in [true, '1', null]",
    "input.flag in [1, 'true']",
    "input.missing > 0",
    "input.missing < 1",
    "input.missing >= input.none",
    "input.none <= 0",
    "input.kind > 5",
    "input.amount > 'a'",
    "input.flag > 0",
    "input.tags > 1",
    "input.amount in input.kind",
    "input.kind in input.address",
    "input.amount contains 1",
    "input.address contains 'city'",
    "input.kind contains input.amount",
    "input.missing contains 'a'",
    "input.amount",
    "input.kind && true",
    "input.missing || input.amount",
    "input.kind == now",
    "input.kind < now",
    "input.amount < now",
    "now in input.tags",
    "input.tags contains now",
    "true && input.flag && input.missing",
]


@pytest.mark.parametrize("text", TRUE)
def test_true(text: str) -> None:
    assert compile_expression(text).evaluate(SCOPE) is True


@pytest.mark.parametrize("text", FALSE)
def test_false(text: str) -> None:
    assert compile_expression(text).evaluate(SCOPE) is False


def test_any_result_gives_the_value_itself() -> None:
    assert value_of("input.address.city") == {"name": "Oslo"}
    assert value_of("input.missing") is None
    assert value_of("now") == NOW
    assert value_of("'text'") == "text"
    assert value_of("-1.5") == -1.5
    assert value_of("input") is SCOPE["input"]


def test_a_list_literal_is_fresh_for_each_evaluation() -> None:
    expression = compile_expression("['a', 1, null]", result="any")
    expression.evaluate(SCOPE).append("changed")
    assert expression.evaluate(SCOPE) == ["a", 1, None]


def test_equality_is_typed_at_any_depth() -> None:
    scope = {"input": {"a": [1, {"x": True}], "b": [1.0, {"x": True}], "c": [1, {"x": 1}], "d": [1, {"y": True}]}}
    same, other, renamed = (compile_expression(f"input.a == input.{name}").evaluate(scope) for name in "bcd")
    assert (same, other, renamed) == (True, False, False)


def test_only_dictionaries_are_walked() -> None:
    class Sneaky(dict[str, Any]):
        secret = 1

    scope = {"input": Sneaky(secret=2), "context": object()}
    assert compile_expression("input.secret == null && context.secret == null").evaluate(scope) is True


def test_a_missing_number_reads_zero_where_the_flow_says_so() -> None:
    for text in ["input.missing < 1", "input.missing >= 0", "0 >= input.none", "input.amount > input.missing"]:
        assert compile_expression(text, missing="zero").evaluate(SCOPE) is True
        assert compile_expression(text).evaluate(SCOPE) is False
    for text in ["input.missing == 0", "input.missing < 'a'", "input.missing >= input.none", "input.missing > now"]:
        assert compile_expression(text, missing="zero").evaluate(SCOPE) is False
    declared = compile_expression("input.x >= input.y", {"input.x": "number", "input.y": "number"}, missing="zero")
    assert declared.evaluate({"input": {}}) is True


def test_and_and_or_stop_early() -> None:
    class Scope(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            assert key == "input", "read more than needed"
            return super().get(key, default)

    scope = Scope(input={"flag": True})
    assert compile_expression("input.flag || context.x").evaluate(scope) is True
    assert compile_expression("!input.flag && context.x").evaluate(scope) is False
    assert compile_expression("input.x || input.flag || context.x").evaluate(scope) is True
    assert compile_expression("input.flag && input.x && context.x").evaluate(scope) is False


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026", "", "\ud800", "now"]
)
def test_odd_moments_never_raise(moment: str) -> None:
    scope = {"now": NOW, "input": {"at": moment}}
    for operator in ["<", "<=", ">", ">=", "==", "!="]:
        assert compile_expression(f"input.at {operator} now").evaluate(scope) in (True, False)


def test_what_an_expression_knows_of_itself() -> None:
    text = "workflow.b == 1 && input.a > 2 && input.a < 9 && context.b == 1"
    expression = compile_expression(text)
    assert expression.text == text
    assert expression.type == "boolean"
    assert expression.reads == ("context.b", "input.a")
    assert expression == compile_expression(text)
    with pytest.raises(AttributeError):
        expression.text = "other"  # type: ignore[misc]


def test_the_audit_record_holds_values_and_chosen_edges() -> None:
    expression = compile_expression("input.amount > 100 && input.address.city.zip == null")
    assert expression.record(SCOPE, True, ("e2",)) == {
        "expression": expression.text,
        "variables": {"input.address.city.zip": None, "input.amount": 150},
        "result": True,
        "chosen_edge_ids": ["e2"],
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x" * 2_000, "text"),
        (["x"] * 2_000, "list"),
        ([{"a": {"b": "x" * 400}}] * 3, "list"),
        ({f"k{n}": 1 for n in range(500)}, "object"),
        ([[]] * 2_000, "list"),
    ],
)
def test_the_audit_record_tells_of_large_values_how_large_they_are(value: Any, kind: str) -> None:
    """Otherwise each condition stores a copy of all it reads."""
    expression = compile_expression("input.large != null && input.small == 1")
    record = expression.record({"input": {"large": value, "small": 1}}, True, ())
    assert record["variables"] == {"input.large": {"omitted": kind, "length": len(value)}, "input.small": 1}


@pytest.mark.parametrize("value", ["x" * 900, ["x"] * 100, {"a": [1, 2.5, None, True]}, None, 1e308, [], {}])
def test_the_audit_record_holds_values_of_common_size(value: Any) -> None:
    expression = compile_expression("input.value != null")
    assert expression.record({"input": {"value": value}}, True, ())["variables"] == {"input.value": value}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("entity.total", "number"),
        ("entity.other", "any"),
        ("entity.other.deep", "any"),
        ("entity", "object"),
        ("actor", "object"),
        ("org.currency", "any"),
        ("context.count", "number"),
        ("workflow.count", "number"),
        ("now", "time"),
        ("[1]", "list"),
        ("null", "null"),
        ("entity.due < '2026-01-01' && entity.due > now", "boolean"),
        ("entity.due == null || entity.due in ['2026-01-01']", "boolean"),
        ("entity.name contains 'x' && actor.roles contains 5", "boolean"),
        ("entity.total in [1, null] && entity.total != null", "boolean"),
        ("entity.paid && !entity.paid && entity.other", "boolean"),
    ],
)
def test_declared_types(text: str, kind: str) -> None:
    assert compile_expression(text, DECLARED, result="any").type == kind


@pytest.mark.parametrize(
    "variables", [{"input": "text"}, {"os": "any"}, {"input.": "any"}, {"": "any"}, {"now": "number"}]
)
def test_wrong_declarations_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("true", variables)
    assert caught.value.code == "EXPRESSION_DECLARATION"


def refusal(text: Any, variables: dict[str, str]) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, variables)
    return caught.value


CORPUS = [(*row, {}) for row in HOSTILE] + [(*row, DECLARED) for row in CONFUSED]


@pytest.mark.parametrize(
    ("text", "code", "column", "variables"), CORPUS, ids=[f"{n}-{ascii(row[0])[1:40]}" for n, row in enumerate(CORPUS)]
)
def test_the_hostile_corpus_is_refused(text: str, code: str, column: int, variables: dict[str, str]) -> None:
    error = refusal(text, variables)
    assert (error.code, error.position) == (f"EXPRESSION_{code}", column)
    assert error.expression == text
    assert f"column {column}" in error.message
    assert error.hint
    str(error).encode()  # printable everywhere


@pytest.mark.parametrize("text", [None, True, 5, ["input.a"], b"input.a"])
def test_an_expression_is_text(text: Any) -> None:
    assert refusal(text, {}).code == "EXPRESSION_SYNTAX"


@pytest.mark.parametrize(
    "text",
    [
        "!" * 9 + "input.a",
        "(" * 10 + "input.a" + ")" * 10,
        " || ".join(["input.a"] * 20),
        "input." + ".".join("a" * 20),
        "input.a == '" + "x" * (500 - 13) + "'",
        "input.a == '" + "(" * 100 + "!" * 100 + "'",
        "input.a > 9007199254740992",
        "input.a > 0." + "1" * 31,
        "input._last_error == null && input.a__b == null",
    ],
)
def test_the_limits_themselves_are_allowed(text: str) -> None:
    assert compile_expression(text).evaluate(SCOPE) in (True, False)


def test_messages_say_what_was_found_and_what_to_write() -> None:
    assert "Found 'and', expected a comparison" in refusal("input.a and input.b", {}).message
    assert "&&" in refusal("input.a and input.b", {}).hint
    assert "Did you mean input?" in refusal("inputs == 1", {}).hint
    assert "CYRILLIC" in refusal("\u0456nput.a", {}).message
    assert "found number and string" in refusal("entity.total > 'x'", DECLARED).message


NAMES = ["input.a", "context", "now", "entity", "__x", "true", "null", "5", "-1", "1e9", "'a'", '"b', "é"]
SIGNS = ["in", "contains", "==", "!=", ">", ">=", "<", "<=", "&&", "||", "!", "(", ")", "[", "]", ","]
NOISE = [".", "\\", "+", "\0", "\ud800", "'"]
WORDS = st.sampled_from(NAMES + SIGNS + NOISE)


def attempt(text: str, **options: Any) -> Expression | ExpressionError:
    try:
        return compile_expression(text, **options)
    except ExpressionError as error:
        return error


@given(st.text(max_size=60) | st.lists(WORDS, max_size=25).map(" ".join) | st.lists(WORDS, max_size=25).map("".join))
@example("input.a == '\\")
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    outcome = attempt(text, result="any")
    if isinstance(outcome, Expression):
        outcome.evaluate(SCOPE)
    else:
        assert 0 <= outcome.position <= len(text)


OPERANDS = st.sampled_from(["input.a", "input.b", "input.a.b", "context.a", "workflow.b", "now", "input"])
VALUES = st.sampled_from(["1", "-2.5", "'a'", "''", "true", "null", "['a', 1]", "'2026-01-01'"]) | OPERANDS
COMPARISONS = st.tuples(OPERANDS, st.sampled_from(["==", "!=", ">", ">=", "<", "<=", "in", "contains"]), VALUES).map(
    " ".join
)
CONDITIONS = st.recursive(
    COMPARISONS | OPERANDS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda t: f"({' '.join(t)})")
        | inner.map(lambda text: f"!({text})")
    ),
    max_leaves=6,
)
TEXT = st.text(max_size=3) | st.sampled_from(["a", NOW, "2026-01-01"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(
    CONDITIONS, st.dictionaries(st.sampled_from(["input", "context", "now"]), JSON), st.sampled_from(["null", "zero"])
)
def test_valid_expressions_never_raise_on_odd_data(text: str, scope: dict[str, Any], missing: Any) -> None:
    expression = attempt(text, missing=missing)
    if isinstance(expression, ExpressionError):
        assert expression.code in ("EXPRESSION_TYPE", "EXPRESSION_TOO_LONG", "EXPRESSION_TOO_DEEP")
        return
    result = expression.evaluate(scope)
    assert result is True or result is False
    assert set(expression.record(scope, result, [])["variables"]) == set(expression.reads)


def test_a_typical_condition_costs_less_than_five_microseconds() -> None:
    expression = compile_expression("input.amount > 100 && input.kind == 'digital'")
    timer = timeit.Timer(lambda: expression.evaluate(SCOPE))
    assert min(timer.repeat(repeat=50, number=1_000)) / 1_000 < 5e-6


def test_every_code_is_documented() -> None:
    documented = DOCS.read_text("utf-8")
    codes = {f"EXPRESSION_{code}" for _, code, _ in HOSTILE + CONFUSED} | {"EXPRESSION_DECLARATION"}
    assert [code for code in sorted(codes) if f"`{code}`" not in documented] == []


def test_the_examples_of_the_documentation_compile() -> None:
    block = DOCS.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    variables = dict.fromkeys(("entity", "actor", "org", "context", "input", "response"), "any")
    examples = [line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()]
    assert len(examples) > 5
    for text in examples:
        compile_expression(text, variables)
