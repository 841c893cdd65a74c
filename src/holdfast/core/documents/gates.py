"""The ways past an approval and into a gate, other than edges and decisions: closed in a document's graph.

In a document's graph a token comes to a node along the edges, or not at all. Three signals could do otherwise:

    an event     would decide an approval without its task, or change the state without the document
    a re-run     of a step from an earlier lap would land behind approvals that this lap has not seen
    a start      in the middle would begin there

A re-run may go back within its lap, since everything behind the step is then done again. A lap begins with the start,
a gate that was passed, a verb or an interrupt. Steps that a re-run has gone back over leave the lap.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.model.control_rows import Expired, Interrupted, Rerun, read_control
from holdfast.core.model.ids import FORWARD
from holdfast.core.model.program import Place, Program
from holdfast.core.model.rows import StepRow
from holdfast.errors import Conflict, HoldfastError, Refused

Point = tuple[int, int]  # a revision and an ordinal within it
Moment = tuple[int, int, int, StepRow]


def is_owned(program: Program, place: Place) -> bool:
    """Check if only decisions of tasks, or verbs on the document, may end a rest at this node."""
    return program.rules.keeps_gates and (place.traits.asks_person or place.traits.listens_to_edges)


def check_input(program: Program, place: Place, given: bytes | None) -> None:
    """Refuse another input for a gate: it reads the document and nothing else."""
    if given is not None and program.rules.keeps_gates and place.traits.is_gate:
        raise Refused(
            f"{place.id!r} is a gate: it takes no input from outside.",
            code="GATE_TAKES_NO_INPUT",
            hint="Run it again with what it had.",
        )


def check_start(program: Program, node: str) -> None:
    """Refuse a start anywhere but at a state of the document."""
    if program.rules.keeps_gates and node != program.entry and node not in program.areas:
        raise passed_over(f"An instance of {program.name!r} cannot begin at {node!r}.")


def check_begun_again(program: Program) -> None:
    """Refuse to begin a finished document again at one of its steps: a verb begins it at a state."""
    if program.rules.keeps_gates:
        raise Conflict(
            f"The instance of {program.name!r} is over, and what it has done to the document stands.",
            code="VERB_NEEDED",
            hint="Call a verb on the document: it begins a new instance at the state that the verb leads to.",
        )


def check_repeat(program: Program, moments: Iterable[Moment], step: StepRow, *, is_dead: bool) -> None:
    """Refuse to run a step again that does not belong to the present lap. A dead token's own step always does."""
    if not program.rules.keeps_gates or is_dead or step.id in lap(program, moments):
        return
    raise passed_over(f"{step.node!r} was visited before the present lap began.")


def passed_over(sentence: str) -> HoldfastError:
    return Conflict(
        f"{sentence} Approvals would be passed over.",
        code="APPROVAL_PASSED",
        hint="Go back to a step of the present lap, or call a verb of the document.",
    )


def lap(program: Program, moments: Iterable[Moment]) -> dict[bytes, Point]:
    """The visits of the present lap, each with the point at which it began."""
    begun: dict[bytes, Point] = {}
    known: dict[bytes, Point] = {}  # of all laps
    for version, ordinal, closes, row in moments:
        if closes:
            if row.kind == FORWARD and _ends_lap(program, row):
                begun.clear()
        elif row.kind == FORWARD:
            begun[row.id] = known[row.id] = (version, ordinal)
        elif row.node == Interrupted.node or _leaves_all(row):
            begun.clear()
        elif row.node == Rerun.node:
            since = known.get(bytes.fromhex(read_control(Rerun, row.detail).of), (0, 0))
            begun = {id: point for id, point in begun.items() if point < since}
    return begun


def _ends_lap(program: Program, row: StepRow) -> bool:
    """Check if the token left a gate or a state by an edge."""
    place = program.places.get(row.node)
    is_boundary = place is not None and (place.traits.is_gate or place.traits.listens_to_edges)
    return is_boundary and row.chosen_edge_ids not in (None, b"[]")


def _leaves_all(row: StepRow) -> bool:
    return row.node == Expired.node and isinstance(read_control(Expired, row.detail).goes_to, str)
