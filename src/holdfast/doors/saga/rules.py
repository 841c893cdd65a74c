"""The rules a single step has to keep, checked before anything is compiled: the place is still the author's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.doors.saga.model import (
    Call,
    Called,
    Compensation,
    Human,
    Items,
    Named,
    Sent,
    Sleep,
    Webhook,
    inner_paths,
    undo_of,
)
from holdfast.doors.saga.options import FLOW_OPTIONS, NAMELESS, OPTIONS, WRITTEN, is_version, name_complaint
from holdfast.doors.saga.problems import Problem, problem
from holdfast.errors import PayloadError
from holdfast.payloads import MAX_DEPTH, canonical, encode

RESERVED: Final = "_root_"
RESERVED_PREFIX: Final = "cond#"
LEVELS: Final = 3  # of JSON around a step in the stored definition, and as many more for each branch around it

Found = Iterator[Problem]


def check_flow(name: Any, version: Any, **options: Any) -> Found:
    if complaint := name_complaint(name, is_id=True):
        yield problem("FLOW_NAME_INVALID", f"The flow's name {complaint}.", "name")
    if not is_version(version):
        yield problem("FLOW_VERSION_INVALID", f"The flow's version is {version!r}.", "version")
    for option, value in options.items():
        holds, wanted = FLOW_OPTIONS[option]
        if not holds(value):
            yield problem("FLOW_OPTION_INVALID", f"The flow has {option} {value!r}; it must be {wanted}.", option)


class _Placed(msgspec.Struct, frozen=True):
    """An item with a name, where it was written, and how deep it will be stored."""

    item: Named
    place: str  # "steps.charge", "steps.charge.undo"
    words: str  # "step 'charge'", "compensation 'refund' of step 'charge'"
    depth: int  # levels of JSON around it

    def misfit(self, option: str, what: str) -> Problem:
        return problem("STEP_OPTION_INVALID", f"The {self.words} {what}.", f"{self.place}.{option}")


def check_steps(items: Items) -> Found:
    placed = list(_placed(items, LEVELS))
    yield from _duplicates(placed)
    for step in placed:
        yield from _check_step(step)


def _placed(items: Items, depth: int) -> Iterator[_Placed]:
    """The items with a name, with the levels of JSON around them."""
    for item in items:
        if isinstance(item, Named):
            place, words = f"steps.{item.name}", f"step {item.name!r}"
            yield _Placed(item, place, words, depth)
            if undo := undo_of(item):
                yield _Placed(undo, f"{place}.undo", f"compensation {undo.name!r} of {words}", depth + 1)
        for path in inner_paths(item):
            yield from _placed(path, depth + LEVELS)


def _duplicates(placed: list[_Placed]) -> Found:
    seen: set[str] = set()
    for one in placed:
        name = one.item.name
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            continue  # reported with its own code
        if name in seen:
            is_undo = isinstance(one.item, Compensation)
            complaint = "has the name of another step or compensation" if is_undo else "is there twice"
            yield problem("STEP_DUPLICATE", f"The {one.words} {complaint}.", one.place)
        seen.add(name)


def _check_step(placed: _Placed) -> Found:
    step = placed.item
    refused = _handler_complaint(step.handler) if isinstance(step, Call | Called) else ""
    if not (refused and isinstance(step, Compensation) and step.name == step.handler):  # one mistake, told once
        yield from _check_name(step.name, placed.place)
    if refused:
        yield problem("HANDLER_INVALID", f"The handler of {placed.words} {refused}.", f"{placed.place}.handler")
    for option, (holds, wanted) in OPTIONS[type(step)].items():
        value = getattr(step, option)
        if not holds(value):
            written = WRITTEN.get(option, option)
            yield placed.misfit(written, f"has {written} {value!r}; it must be {wanted}")
    if isinstance(step, Sleep):
        yield from _check_sleep(placed, step)
    yield from _check_json(placed, "metadata", step.metadata)
    if isinstance(step, Human) and step.form is not None:
        yield from _check_json(placed, "form", step.form)
    if isinstance(step, Webhook) and isinstance(step.headers, dict):
        yield from _check_json(placed, "headers", step.headers)
    if isinstance(step, Sent) and step.deadline is not None and not step.awaits:
        yield placed.misfit(
            "deadline", "has a deadline and does not wait: add awaits=True, or limit attempts by timeout"
        )


def _check_name(name: str, place: str) -> Found:
    if complaint := name_complaint(name, is_id=True):
        yield problem("STEP_NAME_RESERVED", f"The step name {name!r} {complaint}.", place)
    elif name == RESERVED or name.startswith(RESERVED_PREFIX):
        yield problem("STEP_NAME_RESERVED", f"The step name {name!r} is reserved for the engine.", place)


def _handler_complaint(handler: Any) -> str:
    if handler == NAMELESS:
        return "is a lambda or an object without a name that a worker could find it by"
    return name_complaint(handler)


def _check_sleep(placed: _Placed, step: Sleep) -> Found:
    ways = ("seconds", "after", "until", "cron")
    given = [way for way in ways if getattr(step, way) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        yield placed.misfit("seconds", f"needs one of {', '.join(ways)}; it has {found}")
    elif step.timezone is not None and given[0] not in ("until", "cron"):
        yield placed.misfit("timezone", f"has a timezone and {given[0]}, which is the same everywhere")


def _check_json(placed: _Placed, what: str, value: Any) -> Found:
    if not isinstance(value, dict):
        yield placed.misfit(what, f"has {what} {value!r}; it must be a dictionary")
        return
    place, depth = f"The {what} of {placed.words}", placed.depth
    try:
        encode(value, place)
        # Again, because a large whole float comes back as an integer.
        canonical(msgspec.json.decode(canonical(value, place)), place)
        complaint = "" if _has_room(value, depth) else f"{place} is nested deeper than {MAX_DEPTH - depth} levels."
    except PayloadError as refusal:
        complaint = refusal.message
    if complaint:
        yield problem("STEP_OPTION_INVALID", complaint, f"{placed.place}.{what}")


def _has_room(value: Any, depth: int) -> bool:
    """Check the depth an item will have in the stored definition, where it is limited."""
    try:
        encode(_nested(value, depth), "")
    except PayloadError as refusal:
        return refusal.code != "PAYLOAD_TOO_DEEP"  # some bytes more are for the whole definition to refuse
    return True


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value
