"""The workflows of the text, from the files of `examples/steps`, each through HTTP from its start to its end."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from http_server import Served
from office import send, start, told

from holdfast import Context, DoNotRetry, Engine
from holdfast.doors.steps.load import load_steps
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples" / "steps"


class Systems:
    """What the system steps of the examples call."""

    def __init__(self, engine: Engine) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.shop: Any = None
        answers = {
            "submit_dispute": lambda data: {"case_number": f"case-{data['charge']}"},
            "refund": lambda data: {"refunded": data["amount"]},
            "send_link": lambda data: {"verification": f"link to {data['email']}"},
            "remind": lambda data: None,
            "activate": lambda data: {"account": data["name"].lower()},
            "validate_settlement": self._validate,
            "execute_settlement": lambda data: {"reference": f"ref-{data['account']}"},
            "book_expense": lambda data: {"booking": f"b-{data['amount']}"},
            "tell_employee": lambda data: None,
        }
        for name, answer in answers.items():
            engine.register(name, self._handler(name, answer))

    def _handler(self, name: str, answer: Any) -> Any:
        async def handler(ctx: Context, data: Any) -> Any:
            self.calls.append((name, data))
            return answer(data)

        return handler

    def _validate(self, data: Any) -> dict[str, str]:
        if data["payee"] == "nobody":
            raise DoNotRetry("There is no such account.")
        return {"account": f"DE-{data['payee']}"}


@pytest.fixture
async def systems(server: Served) -> AsyncIterator[Systems]:
    spec = importlib.util.spec_from_file_location("ui_example_service", EXAMPLES / "service.py")
    assert spec is not None
    assert spec.loader is not None
    service = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(service)
    systems = Systems(server.engine)
    for file in sorted(EXAMPLES.glob("*.yaml")):
        for workflow in load_steps(file.read_text(), name=file.name).require_sound():
            await server.engine.for_org("acme").publish(workflow)
    with service.running_service() as shop:
        systems.shop = shop.orders
        server.engine.openapi("orders", service.DOCUMENT, base_url=shop.url)
        async with server.engine.worker():
            yield systems


async def look(client: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    answer = await client.get(f"/ui/workflows/{id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def arrives(client: httpx2.AsyncClient, id: str, step: str) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        seen = await look(client, id)
        return seen if seen["current_step"]["id"] == step else None

    return await until(there)


async def event(client: httpx2.AsyncClient, name: str, key: str, **payload: Any) -> None:
    answer = await client.post("/api/v1/events", json={"event": name, "key": key, "payload": payload})
    assert answer.status_code == 202, answer.text


def at(answer: httpx2.Response) -> tuple[str, str]:
    assert answer.status_code == 200, answer.text
    return answer.json()["status"], answer.json()["current_step"]


async def test_order_approval(server: Served, systems: Systems) -> None:
    """Submit → review → approve or reject → process, at a shop that speaks HTTP itself."""
    ann = await server.person("ann", "orders:approve:execute")
    ben = await server.person("ben", "orders:approve:execute", roles=["approver"])
    order = {"order_id": "ord-123", "customer_email": "bob@example.com"}
    approved, refused = [(await start(ann, "orders.approval", **order))["id"] for _ in range(2)]
    assert told(await send(ann, approved, "approved")) == (403, "SELF_APPROVAL")
    assert at(await send(ben, approved, "approved", approval_notes="Fine.")) == ("completed", "approved")
    assert at(await send(ben, refused, "rejected")) == ("completed", "rejected")
    seen = await look(ann, refused)
    assert [(e["event"], e["actor"]) for e in seen["history"] if e["event"] == "rejected"] == [("rejected", "ben")]
    assert [told["email"] for told in systems.shop.notifications] == ["bob@example.com"]


async def test_dispute_resolution(server: Served, systems: Systems) -> None:
    """Open → evidence → review → resolve → close, with the bank outside and two days that pass."""
    sue = await server.person("sue", "disputes:open", roles=["support"])
    judge = await server.person("jo", "disputes:decide", "disputes:refund", roles=["disputes"])
    bank = await server.person("bank")
    disputes = [(await start(sue, "disputes.resolution", charge_id=f"c{n}", amount=40))["id"] for n in (1, 2)]
    accepted, refused = disputes
    assert told(await send(sue, accepted, "completed", summary="short")) == (422, "FORM_INVALID")
    for id in disputes:
        assert at(await send(sue, id, "completed", summary="It was never delivered.")) == ("active", "bank")
    await event(bank, "bank.answered", "case-c1", outcome="accepted")
    await event(bank, "bank.answered", "case-c2", outcome="refused")
    seen = await arrives(sue, accepted, "resolved")
    assert (seen["status"], seen["state"]["refunded"]) == ("completed", 40)
    await arrives(sue, refused, "cooling")
    await advance(server.engine, days=1)
    assert (await look(sue, refused))["current_step"]["id"] == "cooling"
    await advance(server.engine, days=2)
    await arrives(sue, refused, "review")
    assert sorted((await look(judge, refused))["allowed_events"]) == ["approved", "more_evidence", "rejected"]
    assert told(await send(sue, refused, "approved"))[0] == 403
    assert at(await send(judge, refused, "approved", decision_notes="Pay.")) == ("completed", "resolved")
    assert [call for call in systems.calls if call[0] == "refund"] == [
        ("refund", {"charge": "c1", "amount": 40}),
        ("refund", {"charge": "c2", "amount": 40}),
    ]


async def test_user_onboarding(server: Served, systems: Systems) -> None:
    """Register → verify email → configure → activate; the link goes out again when nobody follows it."""
    uma, mail = await server.person("uma"), await server.person("mail")
    new = (await start(uma, "users.onboarding", email="uma@example.com"))["id"]
    assert at(await send(uma, new, "completed", display_name="Uma")) == ("active", "verify_email")
    await advance(server.engine, hours=25)
    await until(lambda: _has_called(systems, "send_link", 2))
    seen = await arrives(uma, new, "verify_email")
    assert "timeout" in [entry["event"] for entry in seen["history"]]
    await event(mail, "email.verified", "link to uma@example.com")
    await arrives(uma, new, "configure")
    assert told(await send(uma, new, "completed", language="xx")) == (422, "FORM_INVALID")
    assert at(await send(uma, new, "completed", language="de")) == ("completed", "active")
    assert (await look(uma, new))["state"]["account"] == "uma"
    assert [name for name, _ in systems.calls] == ["send_link", "remind", "send_link", "activate"]
    left = (await start(uma, "users.onboarding", email="uma@example.com"))["id"]
    await advance(server.engine, days=31)
    assert (await arrives(uma, left, "abandoned"))["status"] == "completed"


async def _has_called(systems: Systems, name: str, times: int) -> bool:
    return [called for called, _ in systems.calls].count(name) >= times


async def test_settlement(server: Served, systems: Systems) -> None:
    """Initiate → validate → execute → confirm → complete; the bank that is silent is asked by somebody."""
    tom = await server.person("tom", "settlements:initiate")
    meg = await server.person("meg", "settlements:investigate", roles=["treasury"])
    bank = await server.person("bank")
    on = {"value_date": (datetime.now(UTC) + timedelta(days=2)).isoformat()}
    paid, lost = [(await start(tom, "settlements.payment", payee=payee, amount=7))["id"] for payee in ("ann", "nobody")]
    assert at(await send(tom, lost, "completed", **on)) == ("active", "initiate")
    seen = await look(tom, lost)
    assert (seen["state"]["_last_error"]["step"], "step_failed" in str(seen["history"])) == ("validate", True)
    assert at(await send(tom, lost, "completed", payee="ben", **on)) == ("active", "value_date")
    assert at(await send(tom, paid, "completed", **on)) == ("active", "value_date")
    assert "execute_settlement" not in dict(systems.calls)
    await advance(server.engine, days=2, minutes=1)
    for id in (paid, lost):
        await arrives(tom, id, "confirm")
    await event(bank, "settlement.confirmed", "ref-DE-ann")
    assert (await arrives(tom, paid, "complete"))["status"] == "completed"
    assert (await meg.get(f"/ui/workflows/{lost}")).status_code == 404  # not hers until it is at her step
    await advance(server.engine, minutes=31)
    await arrives(tom, lost, "investigate")
    assert at(await send(meg, lost, "rejected")) == ("completed", "failed")
    auditor = await server.person("aud", "settlements:*")
    trail = [(e["event"], e["actor"]) for e in (await look(auditor, lost))["history"]]
    assert {("timeout", "system"), ("rejected", "meg"), ("workflow_completed", "system")} <= set(trail)


async def test_expense_approval(server: Served, systems: Systems) -> None:
    """Submit → manager → finance → paid; small ones spare finance."""
    eva, max = await server.person("eva", "expenses:submit"), await server.person("max", "expenses:submit")
    fin = await server.person("fin", "expenses:approve", "expenses:pay", roles=["finance"])
    given = {"employee": "eva", "manager": "max"}
    small, large = [(await start(eva, "expenses.approval", **given))["id"] for _ in range(2)]
    for id, amount in ((small, 20), (large, 800)):
        assert at(await send(eva, id, "submitted", purpose="Train", amount=amount)) == ("active", "manager_review")
    assert at(await send(max, small, "approved")) == ("completed", "paid")
    assert at(await send(max, large, "approved")) == ("active", "finance_review")
    assert at(await send(fin, large, "approved", cost_centre="4711")) == ("completed", "paid")
    assert [data["amount"] for name, data in systems.calls if name == "book_expense"] == [20, 800]
