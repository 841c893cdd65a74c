"""Kinds of graphs: the rules each sets for its instances, looked up when a graph is linked, never stored with it."""

from __future__ import annotations

from typing import Final

import msgspec


class Rules(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rules of one kind of graph. The defaults are those of a saga."""

    is_published: bool = True  # False: made from the contract of an entity
    has_one_end: bool = False  # its end must be the last token's: no end inside a branch
    needs_end: bool = True  # an end must be reached from every node; else an instance may go round for ever
    checks_input: bool = False  # a start needs an object, or input that fits the schema of the entry
    reads_request: bool = False  # expressions find the facts of the request in the context
    signs_approvals: bool = False  # `approved_by` and `rejected_by` in the data are the engine's own
    proves_envelope: bool = False  # it is loaded only if the envelope is whole in it
    has_never_edges: bool = False  # edges on NEVER only place their target, and no token takes them
    needs_document: bool = False  # it runs for a document of its type, and nothing else starts it
    keeps_gates: bool = False  # approvals and gates are passed by decisions and edges only
    tells_facts: bool = False  # consumers are told of every entry: events come as triggers
    takes_events: bool = False  # people answer with events of the graph, not with decisions of tasks
    deadline_code: str = "STEP_DEADLINE"
    deadline_expires_instance: bool = False  # a missed deadline without an edge on `timeout` ends the instance
    expiry_takes_edge: bool = False  # an instance out of time takes the `timeout` edge of the step it is at
    expiry_cancels: bool = False  # an instance that fails because of it cancels what is still open
    lost_calls: int = 0  # calls beyond `retry` for a step that may be repeated and lost its worker


SAGA: Final = Rules()
STEPS: Final = Rules(
    checks_input=True,
    reads_request=True,
    signs_approvals=True,
    takes_events=True,
    deadline_code="STEP_TIMEOUT",
    deadline_expires_instance=True,
    expiry_takes_edge=True,
    expiry_cancels=True,
    lost_calls=2,
)

RULES: Final[dict[str, Rules]] = {
    "saga": SAGA,
    "steps": STEPS,
    "machine": Rules(needs_end=False, tells_facts=True),
    "envelope": Rules(is_published=False, has_one_end=True, keeps_gates=True, has_never_edges=True),
    "org_patch": Rules(is_published=False),
    "effective": Rules(
        is_published=False,
        has_one_end=True,
        needs_document=True,
        keeps_gates=True,
        has_never_edges=True,
        proves_envelope=True,
    ),
}


def rules_of(kind: str) -> Rules:
    return RULES.get(kind, SAGA)
