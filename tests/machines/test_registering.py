"""Registrations: what a consumer takes, and what is refused before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest
from orders import BLUEPRINT, GATES, office, rows

from holdfast import Engine, Machine
from holdfast.errors import Refused

pytestmark = pytest.mark.anyio


async def kinds(engine: Engine, name: str) -> list[str]:
    return [event.hook or event.to_state for event in await engine.receive("prod", name)]


@pytest.mark.parametrize("since", ["now", "beginning"])
@pytest.mark.parametrize(
    ("filters", "taken"),
    [
        ({"events": [1001]}, ["Checked", "CHECK.CREDIT"]),
        ({"events": ["1001"]}, ["Checked", "CHECK.CREDIT"]),
        ({"events": ["Check"]}, ["Checked", "CHECK.CREDIT"]),
        ({"events": [1002, "Ship"]}, []),
        ({"events": "Check", "takes_hooks": False}, ["Checked"]),
        ({"states": ["Checked"], "transitions": False}, ["CHECK.CREDIT"]),
        ({"hooks": ["CHECK.STOCK"]}, ["Checked"]),
        ({"definitions": ["invoice"]}, []),
        ({"definitions": [], "states": [], "events": [], "hooks": []}, ["Checked", "CHECK.CREDIT"]),
    ],
    ids=str,
)
async def test_5_11_a_consumer_gets_what_it_takes(
    engine: Engine, filters: dict[str, Any], taken: list[str], since: Any
) -> None:
    """Whether the fact came after the registration, or is of the past."""
    await office(engine, GATES)
    if since == "now":
        await engine.register_consumer("prod", "billing", **filters)
    await engine.trigger("prod", "order", "O-1", "Check")
    if since == "beginning":
        await engine.register_consumer("prod", "billing", since="beginning", **filters)
    assert await kinds(engine, "billing") == taken


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"transitions": False, "takes_hooks": False}, "CONSUMER_IDLE"),
        ({"way": "here"}, "CONSUMER_WAY"),
        ({"target": {"url": "https://billing.example/"}}, "CONSUMER_TARGET"),
        ({"way": "push"}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "ftp://billing.example/"}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://ann:secret@billing.example/"}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "sign": True}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "signed": "no"}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "secret": 5}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "headers": ["a"]}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "headers": {"host": "x"}}}, "CONSUMER_TARGET"),
        ({"way": "push", "target": {"url": "https://billing.example/", "headers": {"x-a": {}}}}, "CONSUMER_TARGET"),
        ({"events": [True]}, "TEXT_INVALID"),
        ({"events": [1.5]}, "TEXT_INVALID"),
        ({"states": 5}, "TEXT_INVALID"),
        ({"since": "yesterday"}, "MOMENT_INVALID"),
        ({"ttl": float("nan")}, "NUMBER_INVALID"),
        ({"max_attempts": 0}, "NUMBER_INVALID"),
        ({"in_flight": True}, "NUMBER_INVALID"),
    ],
    ids=str,
)
async def test_wrong_wishes_are_refused_before_anything_is_stored(
    engine: Engine, wish: dict[str, Any], code: str
) -> None:
    with pytest.raises(Refused) as caught:
        await engine.register_consumer("prod", "billing", **wish)
    assert caught.value.code == code
    assert rows(engine.dsn, "select count(*) from holdfast.consumers") == [(0,)]


async def test_a_target_may_have_secrets_that_only_others_know(engine: Engine) -> None:
    target = {
        "url": "https://billing.example/", "secret": "theirs", "headers": {"authorization": {"secret": "theirs"}},
    }  # fmt: skip
    await engine.register_consumer("prod", "billing", way="push", target=target)
    assert (await engine.get_consumer("prod", "billing")).target == target


async def test_a_gate_with_a_deadline_is_told_it_and_waits_all_the_same(engine: Engine) -> None:
    """Only effects end at their deadline: what a gate waits for is answered by its consumer."""
    hooks = [
        {"event": "CHECK.CREDIT", "order": 1, "deadline": "PT1M"},
        {"event": "MAIL", "type": "effect", "deadline": "PT1M"},
    ]
    policy = {**GATES, "rules": [{"state": "Checked", "emit": hooks}]}
    await engine.import_machine(Machine.load(BLUEPRINT, policy))
    await engine.register_consumer("prod", "billing")
    await engine.trigger("prod", "order", "O-1", "Check")
    events = {event.hook: event for event in await engine.receive("prod", "billing")}
    assert None not in {events["CHECK.CREDIT"].deadline, events["MAIL"].deadline}
    ends = dict(rows(engine.dsn, "select code, ends_at is not null from holdfast.acks where kind = 'hook'"))
    assert ends == {"CHECK.CREDIT": False, "MAIL": True}
