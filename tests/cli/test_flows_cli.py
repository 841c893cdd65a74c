"""`holdfast flows`: what can be started, and how it was written."""

from __future__ import annotations

from typing import Any

import pytest
from cli_flows import ORDER, WAITING, answered, prepared, refused, told

from holdfast import Flow, SyncEngine
from holdfast.doors.saga.source import read_source


@pytest.fixture
def dsn(holdfast_dsn: str) -> str:
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        engine.publish(Flow("order", version=2).step("all", "do").build(), by="ann")
    return holdfast_dsn


def test_each_flow_is_listed_once_with_its_newest_version(dsn: str) -> None:
    assert [(f["name"], f["version"]) for f in answered(dsn, "flows")] == [
        ("order", 2),
        ("repair", 1),
        ("twice", 1),
        ("waiting", 1),
    ]
    lines = told(dsn, "flows").splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["flow", "version", "kind", "status"],
        ["order", "2", "saga", "published"],
        ["repair", "1", "saga", "published"],
        ["twice", "1", "saga", "published"],
        ["waiting", "1", "saga", "published"],
    ]


def test_one_flow_is_listed_with_all_its_versions(dsn: str) -> None:
    newest, first = told(dsn, "flows", "order").splitlines()[1:]
    assert (newest.split()[1], newest.split()[-1], first.split()[1]) == ("2", "ann", "1")
    assert len(told(dsn, "flows", "order", "--version", "1").splitlines()) == 2


def test_the_code_that_is_printed_builds_the_same_flow(dsn: str) -> None:
    known: dict[str, Any] = {}
    exec(told(dsn, "flows", "order", "--version", "1", "--as", "code"), known)
    built = [value for value in known.values() if getattr(value, "source", None) == ORDER.source]
    assert built


def test_drawings(dsn: str) -> None:
    picture = told(dsn, "flows", "order", "--version", "1", "--as", "picture")
    assert picture.startswith("order version 1\n")
    for name in ("reserve", "release", "fulfil", "unship", "approve"):
        assert name in picture
    assert "waiting version 1" in told(dsn, "flows", "waiting", "--as", "picture")
    mermaid = told(dsn, "flows", "order", "--as", "mermaid")
    assert mermaid.startswith("flowchart TD\n")
    assert "all<br/>task" in mermaid


def test_everything_of_a_flow_as_json(dsn: str) -> None:
    flow = answered(dsn, "flows", "order", "--version", "1")
    assert (read_source(flow["source"]), flow["status"]) == (read_source(ORDER.source), "published")
    assert flow["compiled"]["hash"] == flow["hash"]
    assert answered(dsn, "flows", "waiting")["source"]["entry"] == WAITING["entry"]


def test_refusals(dsn: str) -> None:
    assert refused(dsn, "flows", "nothing") == (4, "FLOW_UNKNOWN")
    assert refused(dsn, "flows", "order", "--version", "9", "--as", "code") == (4, "VERSION_UNKNOWN")
    assert refused(dsn, "flows", "--as", "code") == (6, "FLOW_NOT_NAMED")
    assert refused(dsn, "flows", "--version", "1") == (6, "FLOW_NOT_NAMED")
    assert refused(dsn, "flows", "waiting", "--as", "code") == (6, "FLOW_WITHOUT_CODE")


def test_an_organisation_sees_its_own_and_the_common_ones(holdfast_dsn: str) -> None:
    for org in ("_system", "acme", "other"):
        with SyncEngine(holdfast_dsn, org=org) as engine:
            engine.publish(Flow(f"of {org}").step("all", "do").build())
    with SyncEngine(holdfast_dsn, org="acme") as engine:
        assert [flow.name for flow in engine.flows()] == ["of _system", "of acme"]
        assert engine.flow("of _system").graph.entry == "all"
    assert told(holdfast_dsn, "flows").splitlines()[1].split()[:2] == ["of", "_system"]


def test_nothing_is_published(holdfast_dsn: str) -> None:
    assert told(holdfast_dsn, "flows") == "There are no flows.\n"
    assert answered(holdfast_dsn, "flows") == []
