"""A check that takes too long is ended, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest
from tests.schema_attacks import COSTLY, UNPUBLISHABLE

from holdfast.errors import HoldfastError, InputInvalid, Unavailable
from holdfast.runtime.schemas import deadline
from holdfast.runtime.schemas.schemas import Check, Misfit, SchemaCheck, check_of, is_quick, misfits_of

ENDLESS = "references by anchors"


def asked(check: Check, value: Any) -> list[Misfit]:
    return asyncio.run(_asked(check, value))


async def _asked(check: Check, value: Any) -> list[Misfit]:
    return await misfits_of(check, value)


@pytest.mark.parametrize("name", COSTLY)
def test_a_check_that_takes_too_long_is_ended(name: str) -> None:
    attack = COSTLY[name]
    check = check_of(attack.schema)
    assert not is_quick(check, attack.data)
    with pytest.raises(InputInvalid) as refusal:
        asked(check, attack.data)
    assert refusal.value.code == "SCHEMA_TOO_COSTLY"


def test_the_loop_runs_on_while_a_check_takes_long() -> None:
    attack = COSTLY[ENDLESS]

    async def turns_meanwhile() -> int:
        check = asyncio.create_task(misfits_of(check_of(attack.schema), attack.data))
        turns = 0
        while not check.done():
            await asyncio.sleep(0)
            turns += 1
        assert isinstance(check.exception(), InputInvalid)
        return turns

    assert asyncio.run(turns_meanwhile()) >= 10


def test_a_helper_goes_on_after_another_was_ended() -> None:
    attack = COSTLY[ENDLESS]
    with pytest.raises(InputInvalid):
        asked(check_of(attack.schema), attack.data)
    tree = check_of({"type": "object", "properties": {"child": {"$ref": "#"}}})
    assert asked(tree, {"child": {"child": {}}}) == []
    [misfit] = asked(tree, {"child": {"child": 1}})
    assert misfit.path == "$.child.child"


def test_a_check_that_is_not_asked_on_a_loop_has_the_same_deadline() -> None:
    attack = COSTLY[ENDLESS]
    with pytest.raises(InputInvalid):
        check_of(attack.schema)(attack.data)


def test_a_helper_knows_nothing_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_BILLING", "hidden")
    helpers = deadline.Helpers()
    try:
        assert helpers.misfits(b"true", b"1") == []
        [helper] = helpers._free  # pyright: ignore[reportPrivateUsage]
        with open(f"/proc/{helper.pid}/environ", "rb") as environment:
            assert b"hidden" not in environment.read()
    finally:
        helpers.close()


def test_when_all_helpers_are_taken_one_is_told_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "WAIT_SECONDS", 0.01)
    helpers = deadline.Helpers()
    taken = helpers._slots  # pyright: ignore[reportPrivateUsage]
    for _ in range(deadline.HELPERS):
        assert taken.acquire(blocking=False)
    with pytest.raises(Unavailable) as refusal:
        helpers.misfits(b"true", b"1")
    assert (refusal.value.code, bool(refusal.value.hint)) == ("SCHEMA_CHECK_BUSY", True)
    taken.release()
    try:
        assert helpers.misfits(b"true", b"1") == [], "the next one finds a free helper"
    finally:
        helpers.close()


def test_the_wait_for_a_helper_begins_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a hundred checks that each take a second nobody waits a hundred seconds."""
    monkeypatch.setattr(deadline, "WAIT_SECONDS", 0.05)
    attack, queue_is_long = COSTLY[ENDLESS], threading.Event()

    async def asked_late() -> None:
        ahead = [deadline.threads().submit(queue_is_long.wait, 30) for _ in range(deadline.HELPERS)]
        check = asyncio.create_task(misfits_of(check_of(attack.schema), {"a": 1}))
        await asyncio.sleep(0.1)  # longer than one waits
        queue_is_long.set()
        assert all(one.result(30) for one in ahead)
        await check

    with pytest.raises(Unavailable) as refusal:
        asyncio.run(asked_late())
    assert refusal.value.code == "SCHEMA_CHECK_BUSY"


def test_patterns_are_bounded_before_anything_is_compiled() -> None:
    with pytest.raises(HoldfastError) as refusal:
        check_of(UNPUBLISHABLE["repetitions of repetitions"])
    assert (refusal.value.code, "20000 characters" in refusal.value.message) == ("SCHEMA_INVALID", True)


AT_THE_EDGE: dict[str, tuple[dict[str, Any], Any]] = {
    "errors that quote": ({"allOf": [{"type": "string"}] * 60}, "1"),
    "an enum of objects": ({"items": {"enum": [{"a": n} for n in range(300)]}}, {"a": -1}),
    "lookahead": ({"items": {"pattern": "^(?=(a|aa)+$)(a|aa)+\\1b$"}}, "a" * 36),
    "division": ({"items": {"multipleOf": 0.01}}, 1e-308),
    "unique": ({"uniqueItems": True, "items": {"uniqueItems": True}}, [1, 2]),
}


@pytest.mark.parametrize("name", AT_THE_EDGE)
def test_what_is_done_here_is_quick(name: str) -> None:
    schema, item = AT_THE_EDGE[name]
    check = check_of(schema)
    assert isinstance(check, SchemaCheck)
    one = len(msgspec.json.encode(item)) + 1
    data = [item] * (check._most_bytes // one - 1)  # pyright: ignore[reportPrivateUsage]
    assert is_quick(check, data)
    begin = time.process_time()
    check(data)
    assert time.process_time() - begin < 0.5
