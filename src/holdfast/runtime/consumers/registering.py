"""Registrations: what a caller says of a consumer, checked, and as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any, Final, Literal, cast

from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import Refused
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.consumers.push import FIELDS
from holdfast.runtime.effects.delivery import EffectFailed
from holdfast.runtime.effects.webhook import check_webhook
from holdfast.runtime.machines.triggers import flow_of
from holdfast.runtime.validation import check_flag, check_text, take_names, take_payload
from holdfast.store.consumers import NewConsumer

NOW: Final = "now"
BEGINNING: Final = "beginning"
LONGEST_TTL: Final = 86_400.0
MOST_IN_FLIGHT: Final = 100_000
MOST_ATTEMPTS: Final = 1_000_000
IN_FLIGHT: Final = 256

Since = datetime | Literal["now", "beginning"]


def new_consumer(
    options: ConsumerOptions,
    name: str,
    env: str,
    way: str,
    definitions: Iterable[str] | None,
    states: Iterable[str] | None,
    events: Iterable[str | int] | None,
    hooks: Iterable[str] | None,
    *,
    transitions: bool,
    takes_hooks: bool,
    since: Since,
    ttl: float | None,
    max_attempts: int | None,
    in_flight: int,
    critical: bool,
) -> NewConsumer:
    flow_of(env, "any")  # refuses what is no environment
    _check_name(name)
    for what, value in (("transitions", transitions), ("takes_hooks", takes_hooks), ("critical", critical)):
        check_flag(value, what)
    if not (transitions or takes_hooks):
        raise Refused(
            f"The consumer {name!r} takes neither transitions nor hooks, so it would get nothing.",
            code="CONSUMER_IDLE",
            hint="Take one of them, or remove the consumer.",
        )
    attempts = options.max_attempts if max_attempts is None else max_attempts
    return NewConsumer(
        environment=env,
        name=name,
        way=way,
        definitions=_names(definitions, "definition"),
        states=_names(states, "state"),
        events=_names(_as_text(events), "event"),
        hooks=_names(hooks, "hook"),
        takes_transitions=transitions,
        takes_hooks=takes_hooks,
        critical=critical,
        ttl=take_number(options.ttl if ttl is None else ttl, "ttl", 1.0, LONGEST_TTL),
        max_attempts=round(take_number(attempts, "max_attempts", 1, MOST_ATTEMPTS)),
        in_flight=round(take_number(in_flight, "in_flight", 1, MOST_IN_FLIGHT)),
        since=_since(since),
    )


def _check_name(name: Any) -> None:
    check_text(name if isinstance(name, str) else "", "name of a consumer")
    if "/" in name or len(name.encode()) > 200:
        raise Refused(
            f"{name[:80]!r} is not the name of a consumer.",
            code="TEXT_INVALID",
            hint="Use up to 200 bytes without a slash.",
        )


def _names(names: Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    """The names of a filter. None, for one that takes all, if there are none."""
    return None if names is None else tuple(sorted(set(take_names(names, what)))) or None


def _as_text(events: Any) -> Any:
    """The codes of events as text, beside their names."""
    if isinstance(events, str) or not isinstance(events, Iterable):
        return events
    given = cast("Iterable[Any]", events)
    return [str(event) if isinstance(event, int) and not isinstance(event, bool) else event for event in given]


def take_number(value: Any, what: str, least: float, most: float = inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Refused(
            f"`{what}` is {str(value)[:40]}.", code="NUMBER_INVALID", hint=f"Give a number from {least:g} to {most:g}."
        )
    return value


def _since(since: Any) -> int | None:
    if since == NOW:
        return None
    if since == BEGINNING:
        return 0
    if not isinstance(since, datetime):
        raise Refused(
            f"`since` is {str(since)[:40]!r}.",
            code="MOMENT_INVALID",
            hint='Pass "now", "beginning" or a datetime.',
        )
    return from_datetime(since)


def take_target(way: str, target: Mapping[str, Any] | None) -> bytes | None:
    """Where a consumer is pushed to, as it is stored; checked as far as any process can tell."""
    if way != "push":
        if target is not None:
            raise Refused("Only a push has a target.", code="CONSUMER_TARGET", hint="Leave it out, or register push.")
        return None
    if target is None or not isinstance(target.get("url"), str):
        raise Refused(
            "A push needs a target with a url.", code="CONSUMER_TARGET", hint='Pass target={"url": "https://…"}.'
        )
    known = ", ".join(FIELDS)
    unknown = sorted(str(field)[:80] for field in target if field not in FIELDS)
    if unknown:
        raise Refused(f"A target has no {unknown[0]!r}.", code="CONSUMER_TARGET", hint=f"It takes {known}.")
    try:
        check_webhook(dict(target))
    except EffectFailed as failure:
        raise Refused(failure.message, code="CONSUMER_TARGET", hint=f"A target takes {known}.") from None
    return take_payload(dict(target), "the target")
