"""`holdfast instances`: lists, filters, pages."""

from __future__ import annotations

import pytest
from cli_flows import answered, prepared, refused, told

from holdfast import SyncEngine

ALL = {"small": ("order", {"amount": 5}), "big": ("order", {"amount": 500}), "dead": ("repair", {})}


@pytest.fixture
def started(holdfast_dsn: str) -> dict[str, str]:
    """Ids by key: one completed, one that waits, one with a dead step."""
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        ids = {
            key: engine.start(flow, input, key=key, business_key=f"case {flow}").id
            for key, (flow, input) in ALL.items()
        }
        engine.drain(timeout=30)
    return ids


def test_filters(holdfast_dsn: str, started: dict[str, str]) -> None:
    def found(*arguments: str) -> set[str]:
        names = {id: key for key, id in started.items()}
        return {names[item["id"]] for item in answered(holdfast_dsn, "instances", *arguments)["items"]}

    assert found() == {"small", "big", "dead"}
    assert found("--flow", "order") == {"small", "big"}
    assert found("--status", "completed") == {"small"}
    assert found("--status", "dlq") == {"dead"}
    assert found("--key", "big") == {"big"}
    assert found("--key", "big", "--flow", "repair") == set()
    assert found("--key", "big", "--status", "completed") == set()
    assert found("--business-key", "case order", "--status", "running") == {"big"}
    assert found("--key", "big", "--business-key", "case repair") == set()
    assert found("--since", "1h") == {"small", "big", "dead"}
    assert found("--since", "2099-01-01") == set()
    assert found("--until", "1h") == set()
    assert found("--error", "KeyError") == {"dead"}
    assert found("--error", "KeyError", "--step", "pack") == set()
    assert found("--with-reason", "KeyError", "--status", "dlq") == {"dead"}
    assert found("--flow", "order", "--ended-since", "1h") == {"small"}
    assert found("--flow", "order", "--ended-until", "1h") == set()


def test_pages(holdfast_dsn: str, started: dict[str, str]) -> None:
    first = answered(holdfast_dsn, "instances", "--limit", "2")
    second = answered(holdfast_dsn, "instances", "--limit", "2", "--after", first["next"])
    assert {i["id"] for page in (first, second) for i in page["items"]} == set(started.values())
    assert second["next"] is None
    since = answered(holdfast_dsn, "instances", "--limit", "2", "--since", "1d")
    assert since["next"] == first["next"]


def test_for_people(holdfast_dsn: str, started: dict[str, str]) -> None:
    text = told(holdfast_dsn, "instances")
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert "dlq" in rows[started["dead"]]
    assert "KeyError: " in rows[started["dead"]]
    assert "waits: task" in rows[started["big"]]
    assert "case order" in rows[started["small"]]
    assert "There are more: --after " in told(holdfast_dsn, "instances", "--limit", "1")
    assert told(holdfast_dsn, "instances", "--flow", "none") == "There are no such instances.\n"


def test_refusals(holdfast_dsn: str) -> None:
    assert refused(holdfast_dsn, "instances", "--status", "finished") == (6, "STATUS_UNKNOWN")
    assert refused(holdfast_dsn, "instances", "--since", "yesterday") == (6, "SINCE_INVALID")
    assert refused(holdfast_dsn, "instances", "--since", "9999999999w") == (6, "SINCE_INVALID")
    assert refused(holdfast_dsn, "instances", "--after", "x") == (4, "ID_INVALID")
    assert refused(holdfast_dsn, "instances", "--ended-since", "1h") == (6, "SEARCH_TOO_WIDE")
