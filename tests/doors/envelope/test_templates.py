"""Templates: each is sound and compiles, and is simulated along its main path, its rejection and its edge."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.envelope import load_contracts
from holdfast.errors import NotFound
from holdfast.runtime.envelopes.files import compile_file
from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse, Input
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.runtime.envelopes.simulation import simulate
from holdfast.runtime.envelopes.templates import read_template, template_names

DAY = 86_400
INVOICE = {"total": 4_000_000, "vendor": "v9", "approver": "eva", "note": ""}
ORDER = {"total": 6_000_000, "cost_center_owner": "ann", "vendor_mail": "v@example.org", "note": ""}
RETURN = {"order": "O-1", "credit": 900, "damaged": True, "note": ""}
AGREEMENT = {"amount": 100, "partner": "p", "note": ""}
REQUEST = {"amount": 500, "category": "supplies", "urgent": False}
ARRIVED = Arrive(event="goods.arrived", key="O-1")


def call(verb: str) -> CallVerb:
    return CallVerb(verb=verb)


def yes(*nodes: str) -> list[Input]:
    return [Decide(node=node) for node in nodes]


def no(node: str) -> Decide:
    return Decide(node=node, decision="rejected")


CASES: dict[str, tuple[str, dict[str, Any], list[Input], list[str]]] = {
    "small invoice": (
        "invoice_approval", INVOICE | {"total": 49_999}, [call("submit")], ["draft", "submitted", "active"],
    ),
    "invoice": (
        "invoice_approval", INVOICE | {"total": 50_000}, [call("submit"), *yes("boss")],
        ["draft", "submitted", "active"],
    ),
    "large invoice": (
        "invoice_approval", INVOICE, [call("submit"), *yes("finance", "owner")], ["draft", "submitted", "active"],
    ),
    "invoice, refused by one of two": (
        "invoice_approval", INVOICE, [call("submit"), *yes("finance"), no("owner")], ["draft", "submitted", "draft"],
    ),
    "invoice, nobody decides": (
        "invoice_approval", INVOICE | {"total": 50_000}, [call("submit"), Elapse(seconds=3 * DAY)],
        ["draft", "submitted", "draft"],
    ),
    "invoice, edited meanwhile": (
        "invoice_approval", INVOICE, [call("submit"), *yes("finance"), Edit(fields={"total": 5_000_000})],
        ["draft", "submitted", "draft"],
    ),
    "invoice, cancelled when it is active": (
        "invoice_approval", INVOICE | {"total": 9}, [call("submit"), call("cancel")],
        ["draft", "submitted", "active", "cancelled"],
    ),
    "order": (
        "purchase_order", ORDER, [call("request"), *yes("owner", "board"), call("receive")],
        ["draft", "requested", "ordered", "received"],
    ),
    "order, declined by the board": (
        "purchase_order", ORDER, [call("request"), *yes("owner"), no("board")], ["draft", "requested", "draft"],
    ),
    "order, the owner is away": (
        "purchase_order", ORDER | {"total": 5_000_000},
        [call("request"), Elapse(seconds=2 * DAY), *yes("reminded")], ["draft", "requested", "ordered"],
    ),
    "return": (
        "return_and_credit_note", RETURN, [call("ship"), ARRIVED, *yes("expert", "clerk")],
        ["announced", "checking", "credited"],
    ),
    "return, refused": (
        "return_and_credit_note", RETURN, [call("ship"), ARRIVED, no("expert"), call("again")],
        ["announced", "checking", "refused", "announced"],
    ),
    "return, nothing comes": (
        "return_and_credit_note", RETURN, [call("ship"), Elapse(seconds=14 * DAY)],
        ["announced", "checking", "refused"],
    ),
    "agreement": (
        "amendment_loop", AGREEMENT, [call("send"), *yes("legal", "sales"), call("end")],
        ["draft", "signing", "signed", "ended"],
    ),
    "agreement, refused": (
        "amendment_loop", AGREEMENT, [call("send"), *yes("sales"), no("legal")], ["draft", "signing", "draft"],
    ),
    "agreement, changed after one signature": (
        "amendment_loop", AGREEMENT,
        [call("send"), *yes("legal"), Edit(fields={"amount": 5}), *yes("sales"), *yes("legal")],
        ["draft", "signing", "signing", "signed"],
    ),
    "agreement, a note changes nothing": (
        "amendment_loop", AGREEMENT, [call("send"), *yes("legal"), Edit(fields={"note": "n"}), *yes("sales")],
        ["draft", "signing", "signed"],
    ),
    "fast": ("fast_track", REQUEST, [call("ask")], ["open", "deciding", "granted"]),
    "a person": (
        "fast_track", REQUEST | {"amount": 30_000}, [call("ask"), no("person")], ["open", "deciding", "denied"],
    ),
    "never": ("fast_track", REQUEST | {"category": "gifts"}, [call("ask")], ["open", "deciding", "denied"]),
    "slow, and the person is away": (
        "fast_track", REQUEST | {"amount": 2_000_000},
        [call("ask"), Elapse(seconds=DAY), Elapse(seconds=DAY), *yes("chief")], ["open", "deciding", "granted"],
    ),
    "dropped": (
        "fast_track", REQUEST | {"amount": 30_000}, [call("ask"), call("drop")], ["open", "deciding", "denied"],
    ),
}  # fmt: skip


def way(template: str, document: dict[str, Any], script: list[Input]) -> Simulation:
    file = load_contracts(read_template(template), name=f"{template}.yaml")
    return simulate(compile_file(file), document, script)


@pytest.mark.parametrize("name", CASES)
def test_a_template_leads_where_it_says(name: str) -> None:
    template, document, script, states = CASES[name]
    found = way(template, document, script)
    assert not found.refused
    assert list(found.states) == states
    assert found.status in ("running", "completed")


def test_each_template_is_sound_and_simulated() -> None:
    assert template_names() == tuple(sorted({template for template, *_ in CASES.values()}))
    for name in template_names():
        file = load_contracts(read_template(name), name=name)
        assert not [problem for problem in file.problems if problem.severity == "error"]
        assert (len(file.contracts), len(file.patches)) == (1, 1)


def test_an_unknown_template_is_told_with_those_there_are() -> None:
    with pytest.raises(NotFound, match="invoice_approval") as refused:
        read_template("../secrets")
    assert refused.value.code == "TEMPLATE_NOT_FOUND"


def test_the_sending_tells_the_vendor_and_the_booking_changes_the_note() -> None:
    assert "usr:sending:mail" in way(*CASES["order"][:3]).nodes
    assert way(*CASES["return"][:3]).document["note"] == "credit note posted"
