"""The rules a written saga has to keep, checked before anything is compiled: the place is still the author's own."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from holdfast.definitions.model import Human, Item
from holdfast.definitions.problems import Problem, problem
from holdfast.errors import PayloadError
from holdfast.payloads import canonical, encode

BACKOFFS: Final = ("fixed", "linear", "exponential")
LONGEST_NAME: Final = 200  # bytes, because that is what the columns and their indexes hold
LONGEST_DURATION: Final = 100 * 365.25 * 86_400
RESERVED: Final = "_root_"
RESERVED_PREFIX: Final = "cond#"
_INVISIBLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})

Found = Iterator[Problem]


def check_flow(name: Any, version: Any, items: tuple[Item, ...]) -> Found:
    if complaint := _complaint(name, is_id=True):
        yield problem("FLOW_NAME_INVALID", f"The flow's name {complaint}.", "name")
    if not (_is_whole(version) and 1 <= version < 2**31):
        yield problem("FLOW_VERSION_INVALID", f"The flow's version is {version!r}.", "version")
    if not items:
        yield problem("FLOW_EMPTY", "The flow has no steps.", "steps")
    yield from _duplicates(items)
    for step in items:
        yield from _check_step(step)


def _duplicates(items: tuple[Item, ...]) -> Found:
    seen: set[str] = set()
    for item in items:
        if not isinstance(item.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            continue  # reported with its own code
        if item.name in seen:
            yield problem("STEP_DUPLICATE", f"The step {item.name!r} is there twice.", f"steps.{item.name}")
        seen.add(item.name)


def _check_step(step: Item) -> Found:
    place = f"steps.{step.name}"
    if complaint := _complaint(step.name, is_id=True):
        yield problem("STEP_NAME_RESERVED", f"The step name {step.name!r} {complaint}.", place)
    elif step.name == RESERVED or step.name.startswith(RESERVED_PREFIX):
        yield problem("STEP_NAME_RESERVED", f"The step name {step.name!r} is reserved for the engine.", place)
    if not isinstance(step, Human) and (complaint := _complaint(step.handler)):
        yield problem("HANDLER_INVALID", f"The handler of step {step.name!r} {complaint}.", f"{place}.handler")
    for option, (holds, wanted) in (HUMAN_OPTIONS if isinstance(step, Human) else OPTIONS).items():
        value = getattr(step, option)
        if not holds(value):
            message = f"The step {step.name!r} has {option} {value!r}; it must be {wanted}."
            yield problem("STEP_OPTION_INVALID", message, f"{place}.{option}")
    yield from _check_json(step, "metadata", step.metadata, f"{place}.metadata")
    if isinstance(step, Human) and step.form is not None:
        yield from _check_json(step, "form", step.form, f"{place}.form")


def _check_json(step: Item, what: str, value: Any, place: str) -> Found:
    if not isinstance(value, dict):
        message = f"The step {step.name!r} has {what} {value!r}; it must be a dictionary."
        yield problem("STEP_OPTION_INVALID", message, place)
        return
    try:
        # Nested as deep as it will stand in the compiled graph, because depth is limited there.
        encode({"nodes": {"": {what: value}}}, place)
        canonical(value)
    except PayloadError as refusal:
        message = f"The {what} of step {step.name!r} cannot be stored: {refusal.message}"
        yield problem("STEP_OPTION_INVALID", message, place)


def _complaint(name: Any, *, is_id: bool = False) -> str:
    """Why this is no name, or nothing."""
    if not isinstance(name, str):
        return f"is {type(name).__name__}, not text"
    if not name.strip():
        return "is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return "contains a control character"
    if len(name.encode()) > LONGEST_NAME:
        return f"is {len(name.encode())} bytes long"
    return "contains '@', which separates a token's path and hop" if is_id and "@" in name else ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_delay(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= LONGEST_DURATION


def _is_limit(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 < value <= LONGEST_DURATION)


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and not any(_complaint(name) for name in cast(tuple[Any, ...], value))


OPTIONS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "retries": (lambda value: _is_whole(value) and value < 2**31, "a whole number: all calls, the first included"),
    "retry_delay": (_is_delay, "a number of seconds from 0, at most 100 years"),
    "max_delay": (_is_delay, "a number of seconds from 0, at most 100 years"),
    "backoff": (lambda value: value in BACKOFFS, f"one of {', '.join(BACKOFFS)}"),
    "jitter": (lambda value: _is_number(value) and 0 <= value <= 1, "a share from 0 to 1"),
    "timeout": (_is_limit, "a number of seconds above 0, at most 100 years, or None"),
    "deadline": (_is_limit, "a number of seconds above 0, at most 100 years, or None"),
    "idempotent": (lambda value: isinstance(value, bool), "True or False"),
    "priority": (lambda value: _is_whole(value) and 0 <= value <= 100, "a whole number from 0 to 100"),
    "queue": (lambda value: value is None or not _complaint(value), "a name of 1 to 200 visible bytes, or None"),
}

HUMAN_OPTIONS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "roles": (_are_names, "names of 1 to 200 visible bytes"),
    "due": (_is_limit, "a number of seconds above 0, at most 100 years, or None"),
    "priority": OPTIONS["priority"],
}
