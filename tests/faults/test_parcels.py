"""The judge of what consumers were given: each kind of violation is found, and what is in order is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faults.parcels import CONSUMERS, PATH, Told, judge

REFS = ("p-1", "p-2")


def told(consumer: str, ref: str, number: int, *, attempt: str = "") -> Told:
    return Told(
        consumer, ref, number, PATH[number], guid=f"{ref}/{number}", ack=f"ack {ref}/{number}",
        body=f"{consumer} {ref}/{number}{attempt}", pid=1, t=0.0,
    )  # fmt: skip


def account() -> list[Told]:
    """Everything for everybody, in order."""
    return [told(consumer, ref, number) for number in PATH for ref in REFS for consumer in CONSUMERS]


def test_what_is_whole_and_in_order_breaks_nothing() -> None:
    verdict = judge(account(), REFS)
    assert verdict.broken() == 0
    assert verdict.counts == {"told": 24, "repeated": 0, "facts": 24}


def test_a_duplicate_with_the_same_guid_and_bytes_is_counted() -> None:
    verdict = judge(sorted([*account(), *account()], key=lambda one: one.lifecycle), REFS)
    assert verdict.broken() == 0
    assert verdict.counts["repeated"] == 24


@pytest.mark.parametrize("change", [{"guid": "another"}, {"ack": "another"}, {"body": "another"}], ids=str)
def test_a_duplicate_that_differs_is_found(change: dict[str, str]) -> None:
    whole = account()
    verdict = judge([*whole, replace(whole[-1], **change)], REFS)
    assert verdict.broken("changed") >= 1
    assert verdict.broken() == verdict.broken("changed")


def test_a_guid_that_differs_between_consumers_is_found() -> None:
    whole = account()
    verdict = judge([*whole[:-1], replace(whole[-1], guid="another")], REFS)
    assert verdict.broken("changed") == verdict.broken() == 1


def test_a_fact_that_nobody_got_is_lost() -> None:
    verdict = judge(account()[:-1], REFS)
    assert verdict.violations == {"lost": ["Ship of p-2 never reached slow"]}


def test_a_fact_that_comes_again_after_a_later_one_is_out_of_order() -> None:
    verdict = judge([*account(), told("slow", "p-1", 3)], REFS)
    assert verdict.broken("order") == verdict.broken() == 1


def test_a_fact_that_overtakes_is_out_of_order() -> None:
    whole = account()
    first, third = (whole.index(told("down", "p-1", number)) for number in (1, 3))
    whole[first], whole[third] = whole[third], whole[first]
    verdict = judge(whole, REFS)
    assert verdict.broken("order") == verdict.broken() >= 1


def test_facts_of_what_never_happened_are_found() -> None:
    twice = replace(told("slow", "p-1", 4), lifecycle=5, guid="p-1/5")
    verdict = judge([*account(), twice, *(told("slow", "p-3", number) for number in PATH)], REFS)
    assert verdict.broken("unasked") == verdict.broken() == 2 + len(PATH)
