"""Failpoints: named places where a process can be made to die, fail, lose its connection or hang.

    HOLDFAST_FAILPOINT="commit.before_commit:kill:after=3"     # of a worker process, or of a pytest session

    with failpoint("handler.after", "error", times=2) as point:
        ...
    assert point.fired == 2

The engine has no code for this: methods are wrapped when the first failpoint is set and are as before once the last is
gone. While one is set, statements travel one by one instead of in one flush, so that there is a place between each two
of them; the server does the same as before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final, NoReturn

from holdfast.errors import Refused
from holdfast.testing.injection import POINTS, STATEMENT_AFTER, STATEMENT_BEFORE, Failpoint, active

VARIABLE: Final = "HOLDFAST_FAILPOINT"
ACTIONS: Final = ("kill", "freeze", "error", "disconnect", "delay")

_FAMILIES: Final = (f"{STATEMENT_BEFORE}.", f"{STATEMENT_AFTER}.")
_CONNECTED: Final = ("statement.", "commit.before_commit", "commit.after_commit")


def parse(text: str) -> list[Failpoint]:
    """`point[+point…]:action[:option=value…]`, several of them separated by commas."""
    return [_parse_one(part.strip()) for part in text.split(",") if part.strip()]


def _parse_one(text: str) -> Failpoint:
    points, *rest = (part.strip() for part in text.split(":"))
    if not rest:
        _invalid(text, f"no action; one of {', '.join(ACTIONS)}")
    options: dict[str, str] = {}
    for option in rest[1:]:
        name, equals, value = option.partition("=")
        if not equals:
            _invalid(text, f"{option!r} is not of the form name=value")
        options[name] = value
    try:
        return make(points.split("+"), rest[0], **_typed(options))
    except (TypeError, ValueError) as failure:
        _invalid(text, str(failure))


def _typed(options: dict[str, str]) -> dict[str, int | float | str]:
    kinds: dict[str, Callable[[str], int | float | str]] = {
        "after": int,
        "times": int,
        "seconds": float,
        "sqlstate": str,
    }
    unknown = set(options) - set(kinds)
    if unknown:
        raise ValueError(f"unknown option {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    return {name: kinds[name](value) for name, value in options.items()}


def make(points: Iterable[str], action: str, **options: int | float | str) -> Failpoint:
    """A failpoint that is checked but not set."""
    wanted = frozenset(point.strip() for point in points)
    for point in wanted:
        _check_point(point)
    if action not in ACTIONS:
        _invalid(action, f"an action is one of {', '.join(ACTIONS)}")
    if action == "disconnect" and not all(point.startswith(_CONNECTED) for point in wanted):
        _invalid(action, "a connection can only be lost at statements and commits")
    made = Failpoint(wanted, action, **options)  # pyright: ignore[reportArgumentType]
    if made.after < 0 or made.times < 0 or not 0 <= made.seconds < 3600:
        _invalid(action, "`after` and `times` are not negative, `seconds` is below an hour")
    return made


def _check_point(point: str) -> None:
    known = point in POINTS
    for family in _FAMILIES:
        if point.startswith(family):
            from holdfast.testing.wiring import statements

            known = point.removeprefix(family) in statements()
    if not known:
        raise Refused(
            f"There is no failpoint {point!r}.",
            code="FAILPOINT_UNKNOWN",
            hint=f"One of {', '.join(POINTS)}, or {_FAMILIES[0]}NAME with the name of a file in store/sql.",
        )


def _invalid(text: str, problem: str) -> NoReturn:
    raise Refused(
        f"The failpoint {text!r} cannot be used: {problem}.",
        code="FAILPOINT_INVALID",
        hint="Write point:action:option=value, for example commit.before_commit:kill:after=3.",
    )


# --- setting and meeting them --------------------------------------------------------------------------------------


def install_failpoints(text: str | None = None) -> list[Failpoint]:
    """Set what the text says, or HOLDFAST_FAILPOINT, for the rest of the process."""
    found = parse(os.environ.get(VARIABLE, "") if text is None else text)
    arm(found)
    return found


@contextmanager
def failpoint(point: str, action: str, **options: int | float | str) -> Generator[Failpoint]:
    """Set one for the length of a block; `point` may join several with `+`."""
    made = make(point.split("+"), action, **options)
    arm([made])
    try:
        yield made
    finally:
        active.remove(made)
        if not active:
            from holdfast.testing.wiring import unwire

            unwire()


def arm(points: list[Failpoint]) -> None:
    """Set failpoints for the rest of the process."""
    if points:
        from holdfast.testing.wiring import wire

        wire()
        active.extend(points)
