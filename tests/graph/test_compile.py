"""What the kernel gets: prepared lookups, scopes, a stable order, and a hash that proves them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from graph_samples import chain, edge, fork_and_join, graph, node, shape, sound_graphs
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import (
    COMPILER_VERSION,
    Compiled,
    JoinRequirement,
    dump_compiled,
    hash_compiled,
    require_current,
    sealed,
)
from holdfast.graph.loading import load_compiled
from holdfast.graph.model import Graph, Policy, Retry, Wait, load_graph

PINNED_HASH = "670117d83552b29896b7f99f7a613600747ddd0c0b51a8dae431b2e998efc241"


def refusal(action: Any, *arguments: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        action(*arguments)
    assert caught.value.hint
    return caught.value


def test_edges_are_ordered_by_priority_then_id() -> None:
    sample = chain(
        node("a"),
        more=[
            edge("a", "end", "z", priority=-1, when="true"),
            edge("a", "end", "A", on="error"),
            edge("a", "end", "b"),
        ],
    )
    compiled = compile_graph(sample)
    assert compiled.adjacency == {"a": ("z", "A", "a-end", "b"), "end": ()}
    assert compiled.reverse_adjacency == {"a": (), "end": ("z", "A", "a-end", "b")}
    assert list(compiled.nodes) == ["a", "end"]
    assert list(compiled.edges) == ["A", "a-end", "b", "z"]


def test_a_fork_and_its_join() -> None:
    compiled = compile_graph(fork_and_join())
    assert compiled.joins == {"met": JoinRequirement(split="fork", mode="all", required=2)}
    assert compiled.splits == {"fork": "met"}
    assert compiled.depth == {"fork": 0, "ship": 1, "bill": 1, "met": 0, "end": 0}
    assert compile_graph(fork_and_join("any")).joins["met"].required == 1


def test_nested_scopes_and_escapes() -> None:
    compiled = compile_graph(
        shape(
            "draft:state out:split in:split a b c near:join far:join stop:terminal end:end last:end",
            "draft>out:go out>in out>c in>a in>b a>near b>near b>far:error a>draft:error near>last:error near>far"
            " c>far c>stop:error far>end",
        )
    )
    assert compiled.splits == {"out": "far", "in": "near"}
    assert compiled.depth == {
        "draft": 0,
        "out": 0,
        "in": 1,
        "a": 2,
        "b": 2,
        "c": 1,
        "near": 1,
        "far": 0,
        "end": 0,
        "last": 1,  # an end stays in the scope of its token
        "stop": 0,  # a terminal ends them all
    }


def test_branches_may_end_without_a_join() -> None:
    compiled = compile_graph(shape("fork:split a b one:end two:end", "fork>a fork>b a>one b>two"))
    assert compiled.splits == {"fork": None}
    assert compiled.joins == {}
    assert compiled.depth["one"] == compiled.depth["two"] == 1


def test_a_lap_through_a_split_does_not_nest() -> None:
    compiled = compile_graph(
        shape(
            "s:state fork:split a b met:join end:end",
            "s>fork:go s>end:stop fork>a fork>b a>met b>met b>fork:error met>s",
        )
    )
    assert compiled.depth["fork"] == 0
    assert compiled.depth["b"] == 1


def test_the_order_follows_edges_and_breaks_ties_by_id() -> None:
    diamond = shape("z:start c b a end:end", "z>c z>a:error z>b:go c>end a>end b>end")
    assert compile_graph(diamond).topological_order == ("z", "a", "b", "c", "end")
    loop = shape("b a:state end:end", "b>a a>b:again a>end:done")
    assert compile_graph(loop).topological_order == ("b", "a", "end")


def test_a_long_chain_needs_no_recursion() -> None:
    steps = [node(f"{number:05}") for number in range(3_000)]
    assert compile_graph(chain(*steps)).topological_order[:-1] == tuple(step.id for step in steps)


def test_what_envelopes_need_is_collected() -> None:
    compiled = compile_graph(
        chain(
            node("a", slot="review", edit_window="amend_only", stable=True),
            node("b", slot="review", edit_window="locked"),
            node("c", stable=True),
        )
    )
    assert compiled.slot_map == {"a": "review", "b": "review"}
    assert compiled.edit_windows == {"a": "amend_only", "b": "locked"}
    assert compiled.stable_nodes == ("a", "c")


def test_reads_lists_the_paths_of_all_expressions() -> None:
    compiled = compile_graph(
        chain(
            node("a", "human", wait=Wait(event="paid", key="input.order")),
            node("b", input={"total": "entity.total"}),
            node("c", "wait_timer", delay=None, until="context.due"),
            more=[edge("b", "end", "x", when="actor.level > 3 && input.order == 'x'", priority=-1)],
            variables={"input": "any", "entity.total": "number", "context": "object", "actor.level": "number"},
        )
    )
    assert compiled.reads == ("actor.level", "context.due", "entity.total", "input.order")


def test_a_broken_graph_raises_with_all_diagnostics() -> None:
    error = refusal(compile_graph, chain(node("a", handler=None, deadline=5.0, priority=-1)))
    assert error.code == "DEFINITION_INVALID"
    assert [found.code for found in error.diagnostics] == ["MISSING_HANDLER", "TIMEOUT_EDGE_MISSING", "BAD_PRIORITY"]
    assert "MISSING_HANDLER" in error.message


def test_an_unsupported_format_has_its_own_code() -> None:
    assert refusal(compile_graph, chain(node("a"), format=2)).code == "GRAPH_FORMAT_UNSUPPORTED"


@given(sound_graphs(), st.randoms(use_true_random=False))
def test_the_order_of_writing_does_not_matter(sample: Graph, random: Any) -> None:
    nodes, edges = list(sample.nodes), list(sample.edges)
    random.shuffle(nodes)
    random.shuffle(edges)
    shuffled = msgspec.structs.replace(sample, nodes=tuple(nodes), edges=tuple(edges))
    compiled = compile_graph(sample)
    again = compile_graph(shuffled)
    assert again == compiled
    assert json.dumps(dump_compiled(again)) == json.dumps(dump_compiled(compiled))


@given(sound_graphs())
def test_a_compiled_graph_survives_storage(sample: Graph) -> None:
    compiled = compile_graph(sample)
    dumped = dump_compiled(compiled)
    assert json.loads(json.dumps(dumped)) == dumped
    assert load_compiled(dumped, compiled.hash) == load_compiled(json.dumps(dumped)) == compiled


@given(sound_graphs())
def test_the_order_respects_every_edge_that_closes_no_cycle(sample: Graph) -> None:
    compiled = compile_graph(sample)
    rank = {id: number for number, id in enumerate(compiled.topological_order)}
    assert sorted(rank) == list(compiled.nodes)
    forward = [edge for edge in compiled.edges.values() if edge.on == "completed"]
    assert all(rank[edge.source] < rank[edge.target] for edge in forward)


@given(sound_graphs())
def test_every_fork_finds_its_join(sample: Graph) -> None:
    compiled = compile_graph(sample)
    assert {need.split: join for join, need in compiled.joins.items()} == compiled.splits
    for join, need in compiled.joins.items():
        assert compiled.depth[join] == compiled.depth[need.split]
        assert all(
            compiled.depth[compiled.edges[edge].source] == compiled.depth[join] + 1
            for edge in compiled.reverse_adjacency[join]
        )


def test_the_hash_is_pinned() -> None:
    """A change here strands every published definition: it needs a new graph format or compiler version."""
    sample = chain(
        node("a", retry=Retry(calls=3, delay=0.5, jitter=0.1), timeout=1.0, config={"rate": 0.25, "limit": 1e3}),
        policy=Policy(on_error="dlq"),
    )
    compiled = compile_graph(sample)
    assert compiled.compiler_version == COMPILER_VERSION == "1"
    assert compiled.hash == hash_compiled(compiled) == PINNED_HASH


def test_whole_floats_and_integers_hash_alike() -> None:
    assert compile_graph(chain(node("a", timeout=5))).hash == compile_graph(chain(node("a", timeout=5.0))).hash


@pytest.mark.parametrize("missing", [None, {}, "", b"", "null", b"null"])
def test_an_uncompiled_definition_is_refused(missing: Any) -> None:
    assert refusal(load_compiled, missing).code == "WORKFLOW_NOT_COMPILED"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"hash": "0" * 64},
        {"hash": ""},
        {"topological_order": ["end", "a"]},
        {"policy": {"on_error": "dlq"}},
        {"depth": {"a": 1, "end": 0}},
        {"compiler_version": "0"},
    ],
)
def test_a_changed_artifact_is_refused(change: dict[str, Any]) -> None:
    dumped = dump_compiled(compile_graph(chain(node("a"))))
    assert refusal(load_compiled, dumped | change).code == "WORKFLOW_HASH_MISMATCH"


def test_an_artifact_of_another_row_is_refused() -> None:
    ours = compile_graph(chain(node("a")))
    other = compile_graph(chain(node("b")))
    error = refusal(load_compiled, dump_compiled(ours), other.hash)
    assert error.code == "WORKFLOW_HASH_MISMATCH"
    assert error.detail["actual"] == ours.hash


def test_an_artifact_of_another_format_is_refused() -> None:
    dumped = dump_compiled(compile_graph(chain(node("a"))))
    assert refusal(load_compiled, dumped | {"format": 2}).code == "GRAPH_FORMAT_UNSUPPORTED"
    assert refusal(load_compiled, dumped | {"extra": 1}).code == "GRAPH_INVALID"


def test_only_starts_ask_for_the_current_compiler() -> None:
    compiled = compile_graph(chain(node("a")))
    require_current(compiled)
    old = sealed(msgspec.structs.replace(compiled, compiler_version="0"))
    assert load_compiled(dump_compiled(old)) == old
    assert refusal(require_current, old).code == "WORKFLOW_COMPILER_STALE"


def test_a_compiled_graph_is_frozen() -> None:
    compiled: Any = compile_graph(chain(node("a")))
    assert isinstance(compiled, Compiled)
    with pytest.raises(AttributeError):
        compiled.name = "other"


def test_a_node_of_the_graph_is_found_by_id() -> None:
    sample = graph([node("a"), node("end", "end")], [edge("a", "end")])
    assert compile_graph(sample).nodes["a"] == sample.nodes[0]


def test_a_default_written_out_changes_nothing() -> None:
    def with_retry(**retry: Any) -> str:
        task = {"id": "a", "kind": "task", "handler": "h", "retry": {"calls": 2, **retry}}
        nodes, edges = [task, {"id": "z", "kind": "end"}], [{"id": "a>z", "source": "a", "target": "z"}]
        return compile_graph(load_graph({"name": "f", "entry": "a", "nodes": nodes, "edges": edges})).hash

    assert with_retry() == with_retry(delay=0.0, backoff="".join(["fix", "ed"])) != with_retry(delay=0.5)
