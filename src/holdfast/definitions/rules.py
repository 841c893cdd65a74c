"""The rules a single step has to keep, checked before anything is compiled: the place is still the author's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.definitions.model import Called, Compensation, Human, Items, Named, Sleep, inner_paths, undo_of
from holdfast.definitions.options import FLOW_OPTIONS, NAMELESS, OPTIONS, is_version, name_complaint
from holdfast.definitions.problems import Problem, problem
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


def check_steps(items: Items) -> Found:
    placed = list(_placed(items, LEVELS))
    yield from _duplicates([step for step, _ in placed])
    for step, depth in placed:
        yield from _check_step(step, depth)


def _placed(items: Items, depth: int) -> Iterator[tuple[Named, int]]:
    """Everything that has a name, with the levels of JSON around it."""
    for item in items:
        if isinstance(item, Named):
            yield item, depth
        if undo := undo_of(item):
            yield undo, depth + 1
        for path in inner_paths(item):
            yield from _placed(path, depth + LEVELS)


def _duplicates(named: list[Named]) -> Found:
    seen: set[str] = set()
    for item in named:
        if not isinstance(item.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            continue  # reported with its own code
        if item.name in seen:
            yield problem("STEP_DUPLICATE", f"The step {item.name!r} is there twice.", f"steps.{item.name}")
        seen.add(item.name)


def _check_step(step: Named, depth: int) -> Found:
    place = f"steps.{step.name}"
    if complaint := name_complaint(step.name, is_id=True):
        yield problem("STEP_NAME_RESERVED", f"The step name {step.name!r} {complaint}.", place)
    elif step.name == RESERVED or step.name.startswith(RESERVED_PREFIX):
        yield problem("STEP_NAME_RESERVED", f"The step name {step.name!r} is reserved for the engine.", place)
    if isinstance(step, Called) and (complaint := _handler_complaint(step.handler)):
        noun = "compensation" if isinstance(step, Compensation) else "step"
        yield problem("HANDLER_INVALID", f"The handler of {noun} {step.name!r} {complaint}.", f"{place}.handler")
    for option, (holds, wanted) in OPTIONS[type(step)].items():
        value = getattr(step, option)
        if not holds(value):
            yield _misfit(step, option, f"has {option} {value!r}; it must be {wanted}")
    if isinstance(step, Sleep):
        yield from _check_sleep(step)
    yield from _check_json(step, "metadata", step.metadata, depth)
    if isinstance(step, Human) and step.form is not None:
        yield from _check_json(step, "form", step.form, depth)


def _handler_complaint(handler: Any) -> str:
    if handler == NAMELESS:
        return "is a lambda or an object without a name that a worker could find it by"
    return name_complaint(handler)


def _check_sleep(step: Sleep) -> Found:
    ways = ("seconds", "after", "until", "cron")
    given = [way for way in ways if getattr(step, way) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        yield _misfit(step, "seconds", f"needs one of {', '.join(ways)}; it has {found}")
    elif step.timezone is not None and given[0] not in ("until", "cron"):
        yield _misfit(step, "timezone", f"has a timezone and {given[0]}, which is the same everywhere")


def _check_json(step: Named, what: str, value: Any, depth: int) -> Found:
    if not isinstance(value, dict):
        yield _misfit(step, what, f"has {what} {value!r}; it must be a dictionary")
        return
    place = f"The {what} of step {step.name!r}"
    try:
        encode(value, place)
        # Again, because a large whole float comes back as an integer.
        canonical(msgspec.json.decode(canonical(value, place)), place)
        complaint = "" if _has_room(value, depth) else f"{place} is nested deeper than {MAX_DEPTH - depth} levels."
    except PayloadError as refusal:
        complaint = refusal.message
    if complaint:
        yield problem("STEP_OPTION_INVALID", complaint, f"steps.{step.name}.{what}")


def _has_room(value: Any, depth: int) -> bool:
    """As deep as it will stand in the stored definition, because depth is limited there."""
    try:
        encode(_nested(value, depth), "")
    except PayloadError as refusal:
        return refusal.code != "PAYLOAD_TOO_DEEP"  # some bytes more are for the whole definition to refuse
    return True


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _misfit(step: Named, option: str, what: str) -> Problem:
    return problem("STEP_OPTION_INVALID", f"The step {step.name!r} {what}.", f"steps.{step.name}.{option}")
