"""`holdfast machines`, `trigger`, `consumers` and `acks`: here and through a server, with the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_flows import answered, refused, run, told
from cli_served import serving

MACHINES = Path(__file__).parents[2] / "examples" / "machines"
LOAN = ("--file", str(MACHINES / "loan_approval.blueprint.json"))
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"  # proves that only the server is asked, or nobody
BLUEPRINT: dict[str, Any] = {
    "name": "order",
    "environment": "prod",
    "version": 1,
    "states": [{"name": "New", "is_initial": True}, {"name": "Paid"}, {"name": "Shipped", "is_final": True}],
    "events": [{"code": 1, "name": "Pay"}, {"code": 2, "name": "Ship"}],
    "transitions": [
        {"from": "New", "event": 1, "to": "Paid", "when": "input.amount > 0"},
        {"from": "Paid", "event": 2, "to": "Shipped", "guard": "orders:ship"},
    ],
}
POLICY: dict[str, Any] = {
    "for": {"definition": "order"},
    "rules": [{"state": "Paid", "emit": [{"event": "STOCK", "order": 1}]}],
}
REF = ("prod", "order", "O-1")
BILLING = ("prod", "billing")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    names = tmp_path / "order.blueprint.json", tmp_path / "order.policy.json"
    for name, content in zip(names, (BLUEPRINT, POLICY), strict=True):
        name.write_text(json.dumps(content))
    return str(names[0]), str(names[1])


@pytest.fixture(params=["here", "there"])
def where(request: pytest.FixtureRequest, holdfast_dsn: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The database, and options for a server: one of both is asked."""
    if request.param == "here":
        yield holdfast_dsn, ()
        return
    with serving(holdfast_dsn) as url:
        yield NOWHERE, ("--url", url, "--tenant", "default", "--subject", "ann")


class Command:
    """The command at one place."""

    def __init__(self, where: tuple[str, tuple[str, ...]]) -> None:
        self.dsn, self.options = where

    def answered(self, *words: str) -> Any:
        return answered(self.dsn, *words, *self.options)

    def told(self, *words: str) -> str:
        return told(self.dsn, *words, *self.options, columns=200)

    def refused(self, *words: str) -> tuple[int, str]:
        return refused(self.dsn, *words, *self.options)


@pytest.fixture
def act(where: tuple[str, tuple[str, ...]]) -> Command:
    return Command(where)


@pytest.fixture
def office(act: Command, files: tuple[str, str]) -> Command:
    """The machine is imported, and billing takes its facts."""
    act.told("machines", "import", files[0], "--policy", files[1])
    act.told("consumers", "register", *BILLING, "--max-attempts", "1")
    return act


def test_a_machine_is_imported_once_and_shown(act: Command, files: tuple[str, str]) -> None:
    blueprint, policy = files
    assert "nothing was stored" in act.told("machines", "import", blueprint, "--dry-run")
    assert act.refused("machines", "show", "prod", "order") == (4, "FLOW_UNKNOWN")
    assert "no machines" in act.told("machines", "list")
    assert act.answered("machines", "import", blueprint)["new"]
    assert "unchanged" in act.told("machines", "import", blueprint)
    assert act.answered("machines", "import", "--policy", policy)["version"] == 2
    [listed] = act.answered("machines", "list", "--environment", "prod")
    assert (listed["name"], listed["version"]) == ("prod.order", 2)
    assert act.answered("machines", "list", "--environment", "test") == []
    assert act.answered("machines", "show", "prod", "order")["policy"] == POLICY
    assert act.answered("machines", "show", "prod", "order", "--version", "1")["policy"] is None
    assert "Pay" in act.told("machines", "show", "prod", "order")
    assert act.told("machines", "chart", "prod", "order").startswith("stateDiagram-v2\n")
    assert act.refused("machines", "import") == (6, "MACHINE_MISSING")
    assert act.refused("machines", "chart", "prod") == (6, "MACHINE_NOT_NAMED")


def test_every_finding_of_an_import_is_a_line(holdfast_dsn: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({**BLUEPRINT, "states": [{"name": "New"}], "transitions": []}))
    done = run(holdfast_dsn, "machines", "import", str(broken))
    assert done.code != 0
    for code in ("MACHINE_INITIAL_MISSING", "MACHINE_STATE_STUCK"):
        assert any(f"{broken}:" in line and code in line for line in done.errors.splitlines()), done.errors
    assert "no machines" in told(holdfast_dsn, "machines", "list")
    assert refused(holdfast_dsn, "machines", "import", str(tmp_path / "none.json")) == (4, "FILE_NOT_FOUND")


def test_a_machine_is_tried_without_a_database() -> None:
    done = answered(NOWHERE, "machines", "simulate", *LOAN)
    assert (done["entries"], done["is_over"]) == ([], False)
    assert told(NOWHERE, "machines", "chart", *LOAN).startswith("stateDiagram-v2\n")
    assert run(NOWHERE, "machines", "chart", *LOAN, "prod").code == 2


def test_events_are_tried_with_payloads(office: Command) -> None:
    tried = ("machines", "simulate", "prod", "order", "1", "Ship")
    done = office.answered(*tried, "--payloads", '[{"amount": 5}, null]', "--capability", "orders:ship")
    assert (done["states"], done["is_over"]) == (["New", "Paid", "Shipped"], True)
    assert "stands in New" in office.told(*tried)
    for wrong in ("{}", "[1]", "no"):
        assert office.refused(*tried, "--payloads", wrong) == (6, "INPUT_NOT_JSON")
    assert office.refused(*tried, "--data", "[]") == (6, "INPUT_NOT_JSON")
    assert office.refused("machines", "simulate", "prod", "order", "Fly") == (4, "MACHINE_EVENT_UNKNOWN")


def test_a_trigger_and_its_answer(office: Command) -> None:
    pay = ("trigger", *REF, "Pay", "--payload", '{"amount": 5}', "--request-id", "r-1")
    done = office.answered(*pay)
    assert (done["applied"], done["from_state"], done["to_state"], done["lifecycle"]) == (True, "New", "Paid", 1)
    assert office.answered(*pay) == done
    assert office.answered("machines", "answer", *REF, "r-1") == done
    assert office.refused("machines", "answer", *REF, "r-2") == (4, "TRIGGER_UNKNOWN")
    assert "overtaken" in office.told("trigger", *REF, "2", "--expected", "0")
    assert "blocked" in office.told("trigger", *REF, "Ship")
    assert office.refused("trigger", *REF, "Pay", "--request-id", "r-1") == (5, "SIGNAL_ID_REUSED")
    assert office.refused("trigger", *REF, "Fly") == (6, "EVENT_UNKNOWN")
    assert office.refused("trigger", *REF, "Ship", "--payload", "{") == (6, "INPUT_NOT_JSON")
    stands = office.answered("machines", "where", *REF)
    assert (stands["state"], stands["blocked_by"]) == ("Paid", ["STOCK"])
    assert "STOCK" in office.told("machines", "where", *REF)
    assert office.refused("machines", "where", "prod", "order", "O-9") == (4, "INSTANCE_UNKNOWN")


def test_a_past_is_given(office: Command) -> None:
    past = '[{"event": "Pay", "occurred_at": "2025-03-01T12:00:00+00:00", "payload": {"amount": 5}}]'
    assert office.answered("machines", "backfill", *REF, "--events", past)["to_state"] == "Paid"
    assert office.refused("machines", "backfill", *REF, "--events", "{}") == (6, "INPUT_NOT_JSON")
    assert office.answered("acks", "list", "--environment", "prod", "--consumer", "billing")["items"] == []


def test_facts_are_printed_and_answered(office: Command) -> None:
    office.told("trigger", *REF, "Pay", "--payload", '{"amount": 5}')
    kept = office.told("consumers", "listen", *BILLING, "--keep", "--for", "0", "--json").splitlines()
    assert [json.loads(line)["body"]["kind"] for line in kept] == ["transition", "hook"]
    waiting = office.answered("acks", "list", "--environment", "prod", "--consumer", "billing")["items"]
    assert {each["attempts"] for each in waiting} == {1}
    hook = next(each for each in waiting if each["hook"] == "STOCK")
    office.told("acks", "answer", *BILLING, hook["ack"], "processed", "--verdict", "success")
    told = office.told("consumers", "listen", *BILLING, "--for", "0")
    assert told == ""  # the completion waits for the transition
    office.told("acks", "answer", *BILLING, next(e for e in waiting if not e["hook"])["ack"], "processed")
    assert "complete" in office.told("consumers", "listen", *BILLING, "--for", "0")
    assert office.answered("consumers", "show", *BILLING)["open"] == 0
    instance = office.answered("machines", "where", *REF)["id"]
    assert len(office.answered("acks", "list", "--instance", instance, "--closed")["items"]) == 3
    assert "no such facts" in office.told("acks", "list", "--instance", instance)
    assert office.refused("acks", "list") == (6, "FILTER_MISSING")
    assert office.refused("acks", "list", "--consumer", "billing") == (6, "FILTER_INVALID")


def test_an_answer_brings_the_next_event(office: Command) -> None:
    office.told("trigger", *REF, "Pay", "--payload", '{"amount": 5}')
    [fact] = [each for each in _taken(office) if each["body"]["kind"] == "transition"]
    answer = ("acks", "answer", *BILLING, fact["ack"], "processed")
    assert office.answered(*answer, "--then", "Pay", "--payload", "{}")["reason"] == "not_applicable"
    assert office.refused(*answer, "--payload", "{}") == (6, "EVENT_MISSING")
    assert office.refused(*answer[:-1], "done") == (6, "REQUEST_INVALID" if office.options else "OUTCOME_UNKNOWN_NAME")


def test_failed_facts_are_sent_again_by_consumer(office: Command) -> None:
    redrive = ("acks", "requeue", "--by", "ann", "--reason", "repaired")
    for ref in ("O-1", "O-2"):
        office.told("trigger", "prod", "order", ref, "Pay", "--payload", '{"amount": 5}')
    for fact in _taken(office):
        if fact["body"]["kind"] == "transition":
            office.told("acks", "answer", *BILLING, fact["ack"], "failed", "--message", "closed")
    assert len(office.answered("dlq", "list", "--consumer", "billing", "--source", "ack")) == 2
    assert office.answered("dlq", "list", "--consumer", "audit") == []
    assert office.answered("dlq", "list", "--environment", "test") == []
    assert office.answered(*redrive, "--consumer", "audit", "--yes")["count"] == 0
    assert "2 facts would be" in office.told(*redrive, "--consumer", "billing", "--dry-run")
    assert office.refused(*redrive, "--consumer", "billing") == (6, "CONFIRMATION_NEEDED")
    assert office.refused(*redrive, "--rate", "0", "--yes") == (6, "NUMBER_INVALID")
    done = office.answered(*redrive, "--environment", "prod", "--consumer", "billing", "--rate", "1000", "--yes")
    assert (done["count"], done["left"]) == (2, [])
    assert office.answered("machines", "where", *REF)["status"] == "running"
    assert len([fact for fact in _taken(office) if fact["attempt"] == 2]) == 2


def test_consumers_are_registered_replayed_and_removed(office: Command) -> None:
    wish = ("--event", "1", "--definition", "order", "--no-hooks", "--not-critical", "--since", "beginning")
    found = office.answered("consumers", "register", "prod", "audit", *wish)
    assert (found["events"], found["takes_hooks"], found["critical"]) == (["1"], False, False)
    target = ("--way", "push", "--target", '{"url": "https://billing.example/"}')
    assert office.answered("consumers", "register", "prod", "mail", *target)["way"] == "push"
    assert office.refused("consumers", "register", "prod", "mail", "--way", "push") == (6, "CONSUMER_TARGET")
    assert office.refused("consumers", "register", "prod", "mail", "--since", "soon") == (6, "SINCE_INVALID")
    office.told("consumers", "remove", "prod", "mail", *(() if office.options else ("--by", "ann")))
    assert office.refused("consumers", "show", "prod", "mail") == (4, "CONSUMER_UNKNOWN")
    lines = office.told("consumers", "list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["prod/audit", "prod/billing"]
    assert "no consumers" in office.told("consumers", "list", "--environment", "test")
    assert "would be given" in office.told("consumers", "replay", *BILLING, "--since", "1h", "--dry-run")


def _taken(office: Command) -> list[Any]:
    lines = office.told("consumers", "listen", *BILLING, "--keep", "--for", "0", "--json").splitlines()
    return [json.loads(line) for line in lines]
