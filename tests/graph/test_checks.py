"""Every diagnostic has a smallest graph that shows it, and all problems of a graph are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from graph_samples import ANY_GRAPH, chain, edge, fork_and_join, graph, node, shape, shaped_graphs
from hypothesis import given
from msgspec.structs import replace

from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import Compiled
from holdfast.graph.diagnostics import RULES, Diagnostic
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.model import Child, Graph, Policy, Region, Retry, Wait, load_graph

END = node("end", "end")
REFERENCE = Path(__file__).parents[2] / "docs" / "graph.md"


def rest_to_end(**fields: Any) -> Graph:
    """A rest node that leads on by the event `approved`."""
    return graph([node("rest", "human", **fields), END], [edge("rest", "end", on="approved")])


UNDONE_TOGETHER = graph(
    [node("a", undo="u"), node("b", undo="u"), node("u", "compensation"), END], [edge("a", "b"), edge("b", "end")]
)
UNDONE_PAUSE = graph([node("a", "wait_timer", undo="u"), node("u", "compensation"), END], [edge("a", "end")])


def within(*regions: Region) -> Graph:
    return replace(chain(node("a")), regions=regions)


# code, place, graph
CASES: list[tuple[str, str, Graph]] = [
    ("GRAPH_INVALID", "nodes[0].priority", chain(node("a", priority=cast(int, "high")))),
    ("GRAPH_FORMAT_UNSUPPORTED", "format", chain(node("a"), format=2)),
    ("UNKNOWN_GRAPH_KIND", "kind", chain(node("a"), kind="poem")),
    ("BAD_VERSION", "version", chain(node("a"), version=0)),
    ("BAD_VERSION", "nodes.a.child.version", chain(node("a", "sub_flow", child=Child(flow="b", version=0)))),
    ("BAD_NAME", "nodes.", chain(node(""))),
    ("BAD_NAME", "nodes.a@b", chain(node("a@b"))),
    ("BAD_NAME", "nodes.a.handler", chain(node("a", handler="x" * 201))),
    ("BAD_NAME", "name", replace(chain(node("a")), name="ü" * 101)),
    ("BAD_NAME", "nodes.a.wait.event", chain(node("a", "wait_event", wait=Wait(event="ü" * 101)))),
    ("BAD_NAME", "policy.capabilities", chain(node("a"), policy=Policy(capabilities=("\ud800",)))),
    ("BAD_NAME", "edges.a\nb", chain(node("a"), more=[edge("a", "end", "a\nb", on="error")])),
    ("BAD_NAME", "edges.x.on", chain(node("a"), more=[edge("a", "end", "x", on=" ")])),
    ("BAD_VALUE", "nodes.a", chain(node("a", config={"big": 2**60}))),
    ("BAD_VALUE", "nodes.a", chain(node("a", config={"big": 1e300}))),
    ("BAD_VALUE", "nodes.a", chain(node("a", config={"x": float("nan")}))),
    ("BAD_VALUE", "nodes.a", chain(node("a", metadata={"x": "\0"}))),
    ("BAD_VALUE", "nodes.a", chain(node("a", config={"x": {5: "five"}}))),
    ("BAD_VALUE", "edges.x", chain(node("a"), more=[edge("a", "end", "x", on="error", label="\ud800")])),
    ("BAD_VALUE", "nodes.a.config.output_keys", chain(node("a", config={"output_keys": "total"}))),
    ("BAD_VARIABLE", "variables.input.a", chain(node("a"), variables={"input.a": "wish"})),
    ("BAD_VARIABLE", "variables.input..a", chain(node("a"), variables={"input..a": "number"})),
    ("BAD_POLICY", "policy.on_error", chain(node("a"), policy=Policy(on_error="shrug"))),
    ("BAD_POLICY", "policy.missing", chain(node("a"), policy=Policy(missing="one"))),
    ("BAD_POLICY", "policy.chain_limit", chain(node("a"), policy=Policy(chain_limit=0))),
    ("UNKNOWN_ON_TIMEOUT", "policy.on_timeout", chain(node("a"), policy=Policy(on_timeout="late"))),
    ("DUPLICATE_NODE", "nodes.a", graph([node("a"), node("a"), END], [edge("a", "end")])),
    ("DUPLICATE_EDGE", "edges.a-end", chain(node("a"), more=[edge("a", "end")])),
    ("UNKNOWN_KIND", "nodes.a.kind", chain(node("a", "mystery"))),
    ("UNKNOWN_ENTRY", "entry", chain(node("a"), entry="b")),
    ("UNKNOWN_SOURCE", "edges.b-end.source", chain(node("a"), more=[edge("b", "end")])),
    ("UNKNOWN_TARGET", "edges.a-b.target", chain(node("a"), more=[edge("a", "b", on="error")])),
    ("UNREACHABLE_NODE", "nodes.b", graph([node("a"), node("b"), END], [edge("a", "end"), edge("b", "end")])),
    ("BAD_EDIT_WINDOW", "regions.r.window", chain(node("a"), regions=(Region(id="r", nodes=("a",), window="ajar"),))),
    ("NO_END", "nodes", graph([node("a")], [edge("a", "a")])),
    ("NO_END", "nodes.b", graph([node("a"), node("b"), END], [edge("a", "end"), edge("a", "b", on="error")])),
    ("NO_WAY_ON", "nodes.a", graph([node("a"), END], [edge("a", "end", on="error")])),
    ("END_WITH_EDGES", "edges.end-a", chain(node("a"), more=[edge("end", "a")])),
    ("MISSING_HANDLER", "nodes.a", chain(node("a", "task", handler=None))),
    ("MISSING_HANDLER", "nodes.a", chain(node("a", "rule", handler=None))),
    ("MISSING_HANDLER", "nodes.a", chain(node("a", "effect", handler=None))),
    ("MISSING_CHILD", "nodes.a", chain(node("a", "sub_flow", child=None))),
    ("MISSING_MODE", "nodes.met", fork_and_join(mode=None)),
    ("BAD_MODE", "nodes.met.mode", fork_and_join(mode="most")),
    ("BAD_RETRY", "nodes.a.retry.calls", chain(node("a", retry=Retry(calls=0)))),
    ("BAD_RETRY", "nodes.a.retry.backoff", chain(node("a", retry=Retry(backoff="sometimes")))),
    ("BAD_RETRY", "nodes.a.retry.delay", chain(node("a", retry=Retry(delay=-1)))),
    ("BAD_RETRY", "nodes.a.retry.max_delay", chain(node("a", retry=Retry(max_delay=1e12)))),
    ("BAD_RETRY", "nodes.a.retry.jitter", chain(node("a", retry=Retry(jitter=1.5)))),
    ("BAD_DURATION", "nodes.a.timeout", chain(node("a", timeout=0))),
    ("BAD_DURATION", "nodes.a.deadline", chain(node("a", deadline=-5), more=[edge("a", "end", "t", on="timeout")])),
    ("BAD_DURATION", "nodes.a.delay", chain(node("a", "wait_timer", delay=1e12))),
    ("BAD_DURATION", "policy.timeout", chain(node("a"), policy=Policy(timeout=float("nan")))),
    ("BAD_PRIORITY", "nodes.a.priority", chain(node("a", priority=101))),
    ("BAD_EDIT_WINDOW", "nodes.a.edit_window", chain(node("a", edit_window="ajar"))),
    ("TIMER_WITHOUT_TIME", "nodes.a", chain(node("a", "wait_timer", delay=None))),
    ("TIMER_AMBIGUOUS", "nodes.a", chain(node("a", "wait_timer", delay=5, until="now"))),
    ("TIMER_AMBIGUOUS", "nodes.a", chain(node("a", "wait_timer", after="5", cron="* * * * *", delay=None))),
    ("BAD_CRON", "nodes.a.cron", chain(node("a", "wait_timer", cron="61 * * * *", delay=None))),
    ("BAD_CRON", "nodes.a.cron", chain(node("a", "wait_timer", cron="* " * 200, delay=None))),
    ("BAD_TIMEZONE", "nodes.a.timezone", chain(node("a", "wait_timer", cron="* * * * *", timezone="Mars", delay=None))),
    ("BAD_TIMEZONE", "nodes.a.timezone", chain(node("a", "wait_timer", delay=5, timezone="Europe/Berlin"))),
    ("BAD_EXPRESSION", "nodes.a.after@0", chain(node("a", "wait_timer", delay=None, after="nowhere.x"))),
    ("REST_WITHOUT_EVENT", "nodes.a", graph([node("a", "human"), END], [edge("a", "end", on="timeout")])),
    ("UNKNOWN_UNDO", "nodes.a.undo", chain(node("a", undo="b"))),
    ("UNDO_MISMATCH", "nodes.a.undo", chain(node("a", undo="b"), node("b"))),
    ("UNDO_MISPLACED", "nodes.a.undo", UNDONE_PAUSE),
    ("COMPENSATION_UNUSED", "nodes.a", graph([node("b"), node("a", "compensation"), END], [edge("b", "end")])),
    ("COMPENSATION_SHARED", "nodes.u", UNDONE_TOGETHER),
    ("COMPENSATION_ON_PATH", "edges.u-end", chain(node("a", undo="u"), node("u", "compensation"))),
    ("SAVE_POINT_IN_SCOPE", "nodes.s", shape("f:split a s:save_point end:end", "f>a f>s a>end s>end")),
    ("TIMEOUT_EDGE_MISSING", "nodes.rest", rest_to_end(deadline=60)),
    ("NO_DEFAULT_EDGE", "nodes.a", graph([node("a"), END], [edge("a", "end", when="input.x == 1")])),
    ("NO_DEFAULT_EDGE", "nodes.a", graph([node("a", "human"), END], [edge("a", "end", on="go", when="input.x == 1")])),
    ("BAD_EXPRESSION", "edges.x.when@8", chain(node("a"), more=[edge("a", "end", "x", when="true && nowhere.x")])),
    ("BAD_EXPRESSION", "nodes.a.until@0", chain(node("a", "wait_timer", delay=None, until="nowhere.x"))),
    ("BAD_EXPRESSION", "nodes.rest.wait.key@0", rest_to_end(wait=Wait(event="paid", key="nowhere.x"))),
    ("BAD_EXPRESSION", "nodes.a.input.sum@0", chain(node("a", input={"sum": "nowhere.x"}))),
    ("BAD_EXPRESSION", "nodes.a.input.sum@0", chain(node("a", input={"sum": "response.x"}))),
    ("BAD_EXPRESSION", "nodes.a.output.sum@0", chain(node("a", output={"sum": "nowhere.x"}))),
    ("BAD_EXPRESSION", "nodes.rest.assignee@0", rest_to_end(assignee="nowhere.x")),
    ("BAD_NAME", "nodes.rest.capabilities", rest_to_end(capabilities=("",))),
    ("BAD_NAME", "policy.capabilities", chain(node("a"), policy=Policy(capabilities=("",)))),
    ("BAD_POLICY", "policy.keeps_error", chain(node("a"), policy=Policy(keeps_error=True))),
    ("FIELD_MISPLACED", "nodes.a.output", chain(node("a", "condition", output={"x": "response.x"}))),
    ("FIELD_MISPLACED", "nodes.a.output", chain(node("a", "effect", output={"x": "response.x"}))),
    ("FIELD_MISPLACED", "nodes.rest.output", rest_to_end(output={"x": "response.x"})),
    ("FIELD_MISPLACED", "nodes.a.best_effort", chain(node("a", "action", best_effort=True))),
    ("FIELD_MISPLACED", "nodes.a.capabilities", chain(node("a", capabilities=("act",)))),
    ("FIELD_MISPLACED", "nodes.a.assignee", chain(node("a", assignee="'ann'"))),
    ("FIELD_MISPLACED", "nodes.a.self_approval", chain(node("a", self_approval=False))),
    ("AUTOMATIC_CYCLE", "nodes.a", chain(node("a", "action"), more=[edge("a", "a", "again", priority=1)])),
    ("SPLIT_TOO_NARROW", "nodes.a", chain(node("a", "split"))),
    ("JOIN_WITHOUT_SPLIT", "nodes.a", chain(node("a", "join"))),
    (
        "JOIN_MISMATCH",
        "nodes.met",
        shape(
            "choice:condition one:split two:split a b c d met:join end:end",
            "choice>one choice>two one>a one>b two>c two>d a>met b>met c>met d>met met>end",
        ),
    ),
    (
        "JOIN_MISMATCH",
        "nodes.fork",
        shape(
            "fork:split a b c d one:join two:join end:end",
            "fork>a fork>b fork>c fork>d a>one b>one c>two d>two one>end two>end",
        ),
    ),
    (
        "JUMP_INTO_SCOPE",
        "edges.first-b",
        shape(
            "first fork:split a b met:join end:end",
            "first>fork first>b:error fork>a fork>b a>met b>met met>end",
        ),
    ),
    (
        "JUMP_INTO_SCOPE",
        "edges.first-met",
        shape("first fork:split a b met:join end:end", "first>fork first>met:error fork>a fork>b a>met b>met met>end"),
    ),
    (
        "JUMP_INTO_SCOPE",
        "nodes.met",
        shape("b fork:split a met:join end:end", "fork>a fork>b a>met b>met b>fork:error met>end"),
    ),
    (
        "BAD_FORM",
        "nodes.sign.form.properties.n.type",
        graph([node("sign", "human", form={"properties": {"n": {"type": "nonsense"}}}), END], [edge("sign", "end")]),
    ),
    (
        "BAD_FORM",
        "nodes.sign.form",
        graph([node("sign", "approval", form={"$ref": "https://example.org/x"}), END], [edge("sign", "end")]),
    ),
    (
        "END_IN_SCOPE",
        "nodes.end",
        shape("fork:split a b end:end", "fork>a fork>b a>end b>end", kind="effective"),
    ),
    ("BAD_EDIT_WINDOW", "regions.r.window", within(Region(id="r", nodes=("a",), window="ajar"))),
    ("DUPLICATE_REGION", "regions.r", within(Region(id="r", nodes=("a",)), Region(id="r", nodes=()))),
    ("REGION_OVERLAP", "regions.q.nodes.a", within(Region(id="r", nodes=("a",)), Region(id="q", nodes=("a",)))),
    ("UNKNOWN_REGION_NODE", "regions.r.nodes.b", within(Region(id="r", nodes=("a", "b")))),
    ("UNKNOWN_REGION_NODE", "regions.r.verbs.stop", within(Region(id="r", nodes=("a",), verbs={"stop": "b"}))),
    ("UNKNOWN_REGION_NODE", "regions.r.amendment", within(Region(id="r", nodes=("a",), amendment="b"))),
    ("UNKNOWN_REGION_VERB", "regions.r.verbs.stop", within(Region(id="r", nodes=("a",), guards={"stop": "may"}))),
    (
        "BAD_EXPRESSION",
        "regions.r.conditions.stop@0",
        within(Region(id="r", nodes=("a",), verbs={"stop": "end"}, conditions={"stop": "nowhere.x"})),
    ),
    (
        "SHARED_KEY_WRITTEN",
        "nodes.fork",
        graph(
            [
                node("fork", "split"),
                node("a", config={"output_keys": ["total", "left"]}),
                node("b", config={"output_keys": ["right", "total"]}),
                END,
            ],
            [edge("fork", "a"), edge("fork", "b"), edge("a", "end"), edge("b", "end")],
            policy=Policy(data="context"),
        ),
    ),
]


@pytest.mark.parametrize(("code", "place", "sample"), CASES)
def test_the_smallest_graph_with_this_problem(code: str, place: str, sample: Graph) -> None:
    found = {diagnostic.code: diagnostic for diagnostic in check(sample)}
    assert set(found) == {code}
    assert found[code].place == place
    assert found[code].message.endswith(".")
    assert found[code].hint


def test_every_code_has_a_sample() -> None:
    assert {code for code, _, _ in CASES} == set(RULES)


def test_every_code_is_documented() -> None:
    rows = [line for line in REFERENCE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {line.split("`")[1] for line in rows}
    assert set(RULES) <= documented
    for code, rule in RULES.items():
        row = next(line for line in rows if f"| `{code}` |" in line)
        assert rule.severity in row


def test_the_documented_example_is_sound_and_drawn_as_shown() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    example = load_graph(text.split("```json\n")[1].split("```")[0])
    assert check(example) == ()
    assert to_mermaid(example) == text.split("```mermaid\n")[1].split("```")[0]


@pytest.mark.parametrize(
    "sound",
    [
        chain(node("a")),
        fork_and_join("any"),
        rest_to_end(),
        graph([END], []),
        chain(node("a", "wait_timer", delay=0)),
        chain(node("a", "wait_timer", delay=None, until="input.due")),
        chain(node("a", "human", wait=Wait(event="paid", key="input.order"))),
        chain(node("usr:slot/1 é", "sub_flow")),
        # a rest node breaks a cycle
        shape("a wait:state end:end", "a>wait wait>a:again wait>end:done"),
        # leaving a scope for a node outside is an escape
        shape(
            "draft:state fork:split a b met:join end:end",
            "draft>fork:go fork>a fork>b a>met b>met a>draft:error met>end",
        ),
        # branches may end by themselves, or end everything
        shape("fork:split a b end:end stop:terminal", "fork>a fork>b a>end b>stop"),
        # an inner branch may escape to the join of the outer split
        shape(
            "out:split in:split a b c near:join far:join end:end",
            "out>in out>c in>a in>b a>near b>near b>far:error near>far c>far far>end",
        ),
        # a node that expired instances go to is reached although no edge leads there
        shape("a late end:end", "a>end late>end", policy=Policy(timeout=60, on_timeout="late")),
    ],
)
def test_sound_graphs_have_no_diagnostics(sound: Graph) -> None:
    assert check(sound) == ()


def test_all_problems_are_reported_at_once_and_sorted() -> None:
    broken = graph(
        [node("fork", "split"), node("a", handler=None, priority=500), node("a"), node("met", "join", mode="most")],
        [edge("fork", "a"), edge("a", "nowhere"), edge("a", "met", "x", when="true && nowhere.x", on="go")],
        policy=Policy(on_error="shrug", on_timeout="late"),
    )
    found = check(broken)
    assert [(diagnostic.place, diagnostic.code) for diagnostic in found] == [
        ("edges.a-nowhere.target", "UNKNOWN_TARGET"),
        ("edges.x.when@8", "BAD_EXPRESSION"),
        ("nodes", "NO_END"),
        ("nodes.a", "DUPLICATE_NODE"),
        ("nodes.a", "MISSING_HANDLER"),
        ("nodes.a.priority", "BAD_PRIORITY"),
        ("nodes.fork", "SPLIT_TOO_NARROW"),
        ("nodes.met.mode", "BAD_MODE"),
        ("policy.on_error", "BAD_POLICY"),
        ("policy.on_timeout", "UNKNOWN_ON_TIMEOUT"),
    ]


def test_the_cycle_is_spelled_out() -> None:
    [found] = check(shape("a:start b:action c:action d end:end", "a>b b>c c>b:retry c>d d>a:again d>end"))
    assert found.code == "AUTOMATIC_CYCLE"
    assert "b → c → b" in found.message


def test_a_timer_without_delay_does_not_break_a_cycle() -> None:
    busy = chain(node("a", "wait_timer", delay=0), more=[edge("a", "a", "again", on="go")])
    assert [found.code for found in check(busy)] == ["AUTOMATIC_CYCLE"]


def test_an_expression_keeps_its_own_code() -> None:
    [found] = check(chain(node("a"), more=[edge("a", "end", "x", when="nowhere.x == 1")]))
    assert "EXPRESSION_UNKNOWN_NAME" in found.message


def test_conditions_on_an_event_are_a_warning_only() -> None:
    sample = graph([node("a", "human"), END], [edge("a", "end", on="go", when="input.x == 1")])
    assert [found.severity for found in check(sample)] == ["warning"]
    assert isinstance(compile_graph(sample), Compiled)


def test_keys_of_one_branch_may_repeat() -> None:
    writer = {"config": {"output_keys": ["total"]}}
    nodes = [node("fork", "split"), node("a", **writer), node("b", **writer), node("c"), END]
    edges = [edge("fork", "a"), edge("a", "b"), edge("b", "end"), edge("fork", "c"), edge("c", "end")]
    assert check(graph(nodes, edges, policy=Policy(data="context"))) == ()


def test_diagnostics_are_immutable_values() -> None:
    [found] = check(chain(node("a", priority=-1)))
    assert found == Diagnostic(
        code="BAD_PRIORITY", message="priority is -1.", place="nodes.a.priority", hint=RULES["BAD_PRIORITY"].hint
    )
    with pytest.raises(AttributeError):
        found.code = "OTHER"  # pyright: ignore[reportAttributeAccessIssue]


def verdict(sample: Graph) -> Compiled | tuple[Diagnostic, ...]:
    try:
        return compile_graph(sample)
    except DefinitionError as error:
        return error.diagnostics


@given(ANY_GRAPH)
def test_no_graph_breaks_the_checks(sample: Graph) -> None:
    outcome = verdict(sample)
    diagnostics = check(sample)
    has_errors = any(found.severity == "error" for found in diagnostics)
    assert outcome == diagnostics if has_errors else isinstance(outcome, Compiled)


@given(shaped_graphs())
def test_no_shape_breaks_the_checks(sample: Graph) -> None:
    outcome = verdict(sample)
    turned = Graph(
        name=sample.name, entry=sample.entry, nodes=sample.nodes[::-1], edges=sample.edges[::-1], policy=sample.policy
    )
    assert verdict(turned) == outcome
    if isinstance(outcome, Compiled):
        assert all(outcome.depth[join] == outcome.depth[need.split] for join, need in outcome.joins.items())
