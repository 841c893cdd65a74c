"""Build workflows from text: read, decode, assemble. Parts that cannot be read are reported and left out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.doors.shapes import Items
from holdfast.doors.steps.format import FILE, WORKFLOW
from holdfast.doors.steps.model import Assignee, Retry, Step, Transition, Workflow
from holdfast.doors.steps.slices import cut_out
from holdfast.doors.yaml.decode import Misfit, Taker
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.reading import read_yaml
from holdfast.doors.yaml.tree import Mapping, Sequence, Tree

PREFIX: Final = "STEPS"  # of the codes
_LISTS: Final = frozenset({"capabilities", "call_on"})
_RENAMED: Final = {"from": "source", "to": "target"}


class Draft(msgspec.Struct, frozen=True):
    """The readable part of a workflow."""

    workflow: Workflow
    ids: frozenset[str]  # of all its steps, those that could not be read included
    is_whole: bool  # all steps and transitions could be read
    errors: int  # how many were found while reading it


def read_drafts(text: str, findings: Findings) -> list[Draft]:
    tree, has_anchors = read_yaml(text, findings)
    if tree is None:
        return []
    entries = _entries(tree, findings)
    drafts: list[Draft] = []
    for entry, (begin, end) in entries:
        own = None if has_anchors else cut_out(text, begin, end)
        draft = _draft(entry, findings, text if own is None else own)
        if draft is not None:
            drafts.append(draft)
    return drafts


def _entries(tree: Tree, findings: Findings) -> list[tuple[Tree, tuple[int, int]]]:
    """Find the entries under `workflows`, and check all keys beside it; the caller checks the entries one by one."""
    taker = Taker(findings, PREFIX)
    shape = FILE.table["workflows"].shape
    assert isinstance(shape, Items)
    found = tree.entries.get("workflows") if isinstance(tree, Mapping) else None
    if not isinstance(tree, Mapping) or found is None or not isinstance(found.tree, Sequence):
        taker.take(FILE, tree, ())
        return []
    for key, entry in tree.entries.items():
        if key != "workflows":
            taker.unknown_key(key, entry.key, FILE)
    count = len(found.tree.items)
    if not shape.least <= count <= shape.most:
        message = f"The file has {count} workflows; it must have {shape.least} to {shape.most}."
        findings.add("STEPS_VALUE_INVALID", message, found.tree.mark)
        return []
    return list(zip(found.tree.items, found.tree.spans, strict=True))


def _draft(tree: Tree, findings: Findings, text: str) -> Draft | None:
    before = findings.errors
    taker = Taker(findings, PREFIX)
    taken = taker.take(WORKFLOW, tree, ())
    if isinstance(taken, Misfit) or isinstance(taken.get("id"), Misfit):
        return None
    steps = _sound(taken["steps"], ("id", "type"))
    transitions = _sound(taken.get("transitions", []), ("from", "to", "event"))
    is_whole = (
        len(steps) == _length(taken["steps"])
        and len(transitions) == _length(taken.get("transitions", []))
        and not any(isinstance(taken.get(key), Misfit) for key in ("initial_step", "on_timeout"))
    )
    workflow = Workflow(
        **_fields(taken, without=("steps", "transitions")),
        steps=tuple(_step(item, index) for index, item in steps),
        transitions=tuple(Transition(**_fields(item), index=index) for index, item in transitions),
        file=findings.file,
        text=text,
        marks=taker.marks,
    )
    ids = frozenset(item["id"] for _, item in _sound(taken["steps"], ("id",)))
    return Draft(workflow, ids, is_whole, findings.errors - before)


def _sound(items: Any, needed: tuple[str, ...]) -> list[tuple[int, dict[str, Any]]]:
    """The readable entries, with their positions."""
    if isinstance(items, Misfit):
        return []
    return [
        (index, item)
        for index, item in enumerate(items)
        if not isinstance(item, Misfit) and not any(isinstance(item[key], Misfit) for key in needed)
    ]


def _length(items: Any) -> int:
    return -1 if isinstance(items, Misfit) else len(items)


def _fields(taken: dict[str, Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in taken.items():
        if key in without or isinstance(value, Misfit):
            continue
        if key in _LISTS:
            value = tuple(item for item in value if not isinstance(item, Misfit))
        fields[_RENAMED.get(key, key)] = value
    return fields


def _step(taken: dict[str, Any], index: int) -> Step:
    fields = _fields(taken)
    if "assignee" in fields:
        fields["assignee"] = Assignee(**_fields(fields["assignee"]))
    if "retry" in fields:
        fields["retry"] = Retry(**_fields(fields["retry"]))
    return Step(**fields, index=index)
