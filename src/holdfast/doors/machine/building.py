"""Build the model of a blueprint and of a policy from what the decoder took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from holdfast.doors.machine.decode import MISFIT, Taken, Taker
from holdfast.doors.machine.format import BLUEPRINT, MODES, POLICY
from holdfast.doors.machine.model import (
    Blueprint,
    Completed,
    Emitted,
    Event,
    Parameter,
    Policy,
    PolicyRule,
    State,
    Timeout,
    Transition,
)
from holdfast.doors.machine.places import Path
from holdfast.doors.machine.problems import Findings
from holdfast.errors import PayloadError
from holdfast.payloads import canonical

MINUTE: Final = 60.0
EXACT_INTEGERS: Final = 2**53
MOST_LEVELS: Final = 40  # of a parameter, which is stored deep inside the graph


def build_blueprint(document: Any, findings: Findings) -> Blueprint | None:
    """Build a blueprint of its readable parts; None if the document is no object."""
    taken = Taker(findings).take(BLUEPRINT, document, ())
    if taken is MISFIT:
        return None
    states = list(_parts(taken, "states", ("name",)))
    events = list(_parts(taken, "events", ("code", "name")))
    transitions = list(_parts(taken, "transitions", ("from", "event", "to"), ("when", "guard")))
    return Blueprint(
        name=taken.get("name", ""),
        environment=taken.get("environment", ""),
        version=taken.get("version", 1),
        states=tuple(
            State(
                index=index,
                name=each["name"],
                is_initial=each.get("is_initial", False),
                is_final=each.get("is_final", False),
                category=each.get("category"),
            )
            for index, each in states
        ),
        events=tuple(Event(index=index, code=each["code"], name=each["name"]) for index, each in events),
        transitions=tuple(_transition(index, each) for index, each in transitions),
        has_all_states=_is_whole(taken, "states", states),
        has_all_events=_is_whole(taken, "events", events),
        has_all_transitions=_is_whole(taken, "transitions", transitions),
    )


def _transition(index: int, taken: Taken) -> Transition:
    return Transition(
        index=index,
        source=taken["from"],
        event=taken["event"],
        target=taken["to"],
        when=taken.get("when"),
        guard=taken.get("guard"),
    )


def build_policy(document: Any, findings: Findings) -> Policy | None:
    """Build a policy of its readable parts; None if the document is no object."""
    taken = Taker(findings).take(POLICY, document, ())
    if taken is MISFIT:
        return None
    target = taken.get("for", {})
    params = list(_parts(taken, "params", ("code",)))
    timeouts = (_timeout(index, each, findings) for index, each in _parts(taken, "timeouts", ("state",)))
    return Policy(
        name=taken.get("policy_name"),
        definition=target.get("definition"),
        version=target.get("version"),
        params=tuple(_parameter(index, each, findings) for index, each in params),
        rules=tuple(_rule(index, each) for index, each in _parts(taken, "rules", ("state",), ("via",))),
        timeouts=tuple(timeout for timeout in timeouts if timeout is not None),
        stale=_stale(taken, findings),
        has_all_params=_is_whole(taken, "params", params, is_required=False),
    )


def _parts(taken: Taken, key: str, needed: tuple[str, ...], sound: tuple[str, ...] = ()) -> Iterator[tuple[int, Taken]]:
    """The parts of a list in which nothing that matters to others was refused, each with its position."""
    for index, part in enumerate(cast(list[Any], taken.get(key, []))):
        if part is not MISFIT and all(name in part for name in needed) and part.is_sound(*sound):
            yield index, part


def _is_whole(taken: Taken, key: str, parts: list[tuple[int, Taken]], *, is_required: bool = True) -> bool:
    return len(taken[key]) == len(parts) if key in taken else not is_required


def _parameter(index: int, taken: Taken, findings: Findings) -> Parameter:
    data = taken.get("data")
    path: Path = ("params", index, "data")
    try:
        canonical(data)
    except PayloadError as error:
        findings.add("MACHINE_VALUE_INVALID", path, error.message, hint=error.hint)
        return Parameter(index=index, code=taken["code"])
    if _levels(data) > MOST_LEVELS:
        message = f"The data of {taken['code']!r} is nested deeper than {MOST_LEVELS} levels."
        findings.add("MACHINE_VALUE_INVALID", path, message, hint="Flatten it.")
    elif _has_inexact_number(data):
        message = f"The data of {taken['code']!r} has a number at or above 2^53, which cannot be kept exactly."
        findings.add("MACHINE_VALUE_INVALID", path, message, hint="Write it as text.")
    return Parameter(index=index, code=taken["code"], data=data)


def _levels(value: Any) -> int:
    return 1 + max(map(_levels, _inner(value)), default=0)


def _has_inexact_number(value: Any) -> bool:
    if isinstance(value, float):
        return abs(value) >= EXACT_INTEGERS
    return any(map(_has_inexact_number, _inner(value)))


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value).values())
    return cast(list[Any], value) if isinstance(value, list) else []


def _rule(index: int, taken: Taken) -> PolicyRule:
    return PolicyRule(
        index=index,
        state=taken["state"],
        via=taken.get("via"),
        params=_codes(taken),
        complete=_completed(taken),
        emit=tuple(_emitted(position, each) for position, each in _parts(taken, "emit", ())),
    )


def _emitted(index: int, taken: Taken) -> Emitted:
    return Emitted(
        index=index,
        code=taken.get("event", taken.get("route")),
        codes=len(taken.given & {"event", "route"}),
        type=taken.get("type"),
        order=taken.get("order"),
        ack=taken.get("ack", "all"),
        not_before=taken.get("not_before"),
        deadline=taken.get("deadline"),
        label=taken.get("label"),
        params=_codes(taken),
        complete=_completed(taken),
    )


def _codes(taken: Taken) -> tuple[str, ...]:
    return tuple(code for code in cast(list[Any], taken.get("params", [])) if code is not MISFIT)


def _completed(taken: Taken) -> Completed | None:
    complete = taken.get("complete")
    return Completed(success=complete.get("success"), failure=complete.get("failure")) if complete else None


def _timeout(index: int, taken: Taken, findings: Findings) -> Timeout | None:
    path: Path = ("timeouts", index)
    after = _one_of(taken, "timeout", "timeout_minutes", path, findings)
    if after is None:
        return None
    mode = taken.get("timeout_mode", MODES[0])
    return Timeout(
        index=index,
        state=taken["state"],
        after=after,
        mode=MODES[mode] if isinstance(mode, int) else mode,
        event=taken.get("timeout_event"),
    )


def _stale(taken: Taken, findings: Findings) -> float | None:
    if not taken.given & {"stale", "stale_minutes"}:
        return None
    return _one_of(taken, "stale", "stale_minutes", (), findings)


def _one_of(taken: Taken, span: str, minutes: str, path: Path, findings: Findings) -> float | None:
    """The seconds of a duration that is written as a span or in minutes."""
    given = taken.given & {span, minutes}
    if len(given) == 2:
        findings.add("MACHINE_TIMEOUT_AMBIGUOUS", (*path, minutes), f"There are both {span!r} and {minutes!r}.")
    if not given:
        findings.add("MACHINE_KEY_MISSING", path, f"There is neither {span!r} nor {minutes!r}.")
    value = taken.get(span)
    if value is None or isinstance(value, int):
        value = taken.get(minutes) if value is None else value
        return None if value is None else value * MINUTE
    return value
