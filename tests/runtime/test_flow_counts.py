"""Counts by flow: a tenant reads the names of its own flows and of nobody else's, and nothing is lost or grows."""

from __future__ import annotations

import pytest

from holdfast.runtime.telemetry import flow_counts
from holdfast.runtime.telemetry.flow_counts import OTHERS, FlowCounts


def test_a_tenant_reads_its_own_names_and_the_others_together() -> None:
    counts = FlowCounts("home")
    for org, flow in [("acme", "order"), ("acme", "order"), ("globex", "merger"), ("home", "order")]:
        counts.add(org, flow, "step")
    counts.add("globex", "merger", "workflow")
    assert counts.of("acme") == {("order", "step"): 2, (OTHERS, "step"): 2, (OTHERS, "workflow"): 1}
    assert counts.of("globex") == {("merger", "step"): 1, ("merger", "workflow"): 1, (OTHERS, "step"): 3}
    assert counts.of("nobody") == {(OTHERS, "step"): 4, (OTHERS, "workflow"): 1}


def test_names_of_steps_are_names_as_well() -> None:
    counts = FlowCounts("home", names=2)
    counts.add("acme", "order", "charge", "failed")
    assert counts.of("acme") == {("order", "charge", "failed"): 1}
    assert counts.of("home") == {(OTHERS, OTHERS, "failed"): 1}


def test_the_names_of_one_tenant_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_counts, "MOST_NAMED", 2)
    counts = FlowCounts("home")
    for flow in ("a", "b", "c", "a", "d"):
        counts.add("acme", flow)
    assert counts.of("acme") == {("a",): 2, ("b",): 1, (OTHERS,): 2}


def test_the_names_of_all_are_bounded_but_those_at_home_have_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_counts, "MOST_IN_ALL", 2)
    counts = FlowCounts("home")
    for org in ("a", "b", "c", "home"):
        counts.add(org, "order")
    assert counts.of("c") == {(OTHERS,): 4}
    assert counts.of("home") == {("order",): 1, (OTHERS,): 3}
    assert counts.of("b") == {("order",): 1, (OTHERS,): 3}
