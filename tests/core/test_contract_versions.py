"""Named regressions: a new version of a contract leaves documents that are under way as they are."""

from __future__ import annotations

import msgspec
from core_documents import APPROVE, Document

from holdfast import Contract, Fill, Patch, compile_effective
from holdfast.core.model.program import link
from holdfast.core.model.status import InstanceStatus
from holdfast.graph.compiled import Compiled, dump_compiled
from holdfast.graph.loading import load_compiled

PATCH = (
    Patch("invoice", envelope=1)
    .slot("review", Fill().approval("a", role="manager").edge("in", "a").edge("a", "out", on="approved"))
    .build()
)


def compiled(version: int, *, between: str = "submitted", verb: str = "submit") -> Compiled:
    contract = (
        Contract("invoice", version=version)
        .field("total", "money")
        .state("draft")
        .state(between, window="amend_only")
        .state("active", window="locked", ends=True)
        .verb(verb, "draft", between)
        .verb("withdraw", between, "draft")
        .gate("approve", between, "active", approvals=1)
        .gate("reject", between, "draft")
        .slot("review", between, "approve", rejected="reject", stable=True)
        .amendment(drift="draft")
        .build()
    )
    return compile_effective(contract, msgspec.structs.replace(PATCH, envelope=version))


def stored(artifact: Compiled) -> Compiled:
    """The artifact as it is read back, with its hash and its proof."""
    return load_compiled(msgspec.json.encode(dump_compiled(artifact)), artifact.hash)


def test_editing_a_definition_touches_no_running_instance() -> None:
    first = compiled(1)
    before = dump_compiled(first)
    run = Document(link(stored(first))).submitted()
    changed = compiled(2, verb="hand_in")
    assert changed.hash != first.hash
    assert dump_compiled(first) == before
    assert run.stance is not None
    assert run.stance.verbs == ("withdraw",)
    run.verb("withdraw").verb("submit").decide("a").pass_gate(APPROVE)
    assert run.instance.status is InstanceStatus.COMPLETED


def test_a_renamed_state_leaves_old_instances_readable_and_able_to_finish() -> None:
    first, renamed = compiled(1), compiled(2, between="in_review")
    assert "sys:state:submitted" not in renamed.nodes
    run = Document(link(stored(first))).submitted()
    again = link(stored(first))  # another process, after the new version was published
    assert {token.node for token in run.tokens.values()} <= again.places.keys()
    run.decide("a").pass_gate(APPROVE)
    assert run.instance.status is InstanceStatus.COMPLETED
