"""The OpenAPI document says everything there is to know about each route, and every route is known to the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Engine
from holdfast.server.access.identity import DEVELOPMENT, Identity
from holdfast.server.access.scopes import ALL, Scope, scopes_of
from holdfast.server.app import create_app
from holdfast.server.http.pages import Listing

TESTS = Path(__file__).parent
DOCS = TESTS.parent.parent / "docs" / "api.md"
PROBLEM = "application/problem+json"

# Every operation of /api/v1: the scope it needs, and the file that tests it.
COVERED = {
    "publish_definitions": ("publish", "definitions"),
    "list_definitions": ("read", "definitions"),
    "get_newest_definition": ("read", "definitions"),
    "list_definition_versions": ("read", "definitions"),
    "get_definition": ("read", "definitions"),
    "get_definition_graph": ("read", "definitions"),
    "get_definition_mermaid": ("read", "definitions"),
    "list_instances": ("read", "instances"),
    "start_instance": ("start", "instances"),
    "get_instance": ("read", "instances"),
    "signal_instance": ("act", "instances"),
    "send_event": ("act", "events"),
    "list_steps": ("read", "instances"),
    "list_events": ("read", "instances"),
    "stream_events": ("read", "stream"),
    "get_timeline": ("read", "instances"),
    "list_instance_effects": ("read", "instances"),
    "cancel_instance": ("act", "control"),
    "abort_instance": ("operate", "control"),
    "pause_instance": ("operate", "control"),
    "resume_instance": ("operate", "control"),
    "rerun_instance": ("operate", "control"),
    "requeue_instance": ("operate", "control"),
    "list_tasks": ("read", "tasks"),
    "get_task": ("read", "tasks"),
    "list_task_events": ("read", "tasks"),
    "claim_task": ("act", "tasks"),
    "release_task": ("act", "tasks"),
    "assign_task": ("operate", "tasks"),
    "delegate_task": ("act", "tasks"),
    "decide_task": ("act", "tasks"),
    "list_dead_letters": ("operate", "control"),
    "get_dead_letter": ("operate", "control"),
    "requeue_dead_letters": ("operate", "control"),
    "requeue_dead_letter": ("operate", "control"),
    "discard_dead_letter": ("operate", "control"),
    "list_effects": ("read", "effects"),
    "get_effect": ("read", "effects"),
    "replay_effect": ("operate", "effects"),
    "list_workers": ("operate", "control"),
    "get_statistics": ("read", "control"),
    "get_lifecycle": ("read", "lifecycle"),
    "list_activities": ("read", "lifecycle"),
    "write_activity": ("act", "lifecycle"),
    "freeze_activity": ("operate", "lifecycle"),
    "unfreeze_activity": ("operate", "lifecycle"),
    "list_notices": ("read", "notices"),
    "stream_notices": ("read", "notices"),
    "publish_contract": ("publish", "contracts"),
    "list_contracts": ("read", "contracts"),
    "get_newest_contract": ("read", "contracts"),
    "list_contract_versions": ("read", "contracts"),
    "get_contract": ("read", "contracts"),
    "get_contract_envelope": ("read", "contracts"),
    "get_contract_mermaid": ("read", "contracts"),
    "get_effective_graph": ("read", "contracts"),
    "diff_contract": ("read", "contracts"),
    "simulate_document": ("read", "contracts"),
    "get_effective_mermaid": ("read", "contracts"),
    "list_contract_events": ("read", "contracts"),
    "save_patch_draft": ("publish", "contracts"),
    "get_patch_draft": ("read", "contracts"),
    "drop_patch_draft": ("publish", "contracts"),
    "check_patch": ("read", "contracts"),
    "publish_patch": ("publish", "contracts"),
    "list_patches": ("read", "contracts"),
    "get_patch": ("read", "contracts"),
    "restore_patch": ("publish", "contracts"),
    "archive_patch": ("publish", "contracts"),
    "rebase_patch": ("publish", "contracts"),
    "publish_rule_table": ("publish", "rule_tables"),
    "list_rule_tables": ("read", "rule_tables"),
    "get_rule_table": ("read", "rule_tables"),
    "import_machine": ("publish", "machines"),
    "list_machines": ("read", "machines"),
    "get_machine": ("read", "machines"),
    "get_machine_chart": ("read", "machines"),
    "simulate_machine": ("read", "machines"),
    "trigger_machine": ("act", "machines"),
    "get_trigger_answer": ("read", "machines"),
    "get_machine_instance": ("read", "machines"),
    "backfill_machine": ("operate", "machines"),
    "register_consumer": ("consume", "consumers"),
    "list_consumers": ("read", "consumers"),
    "get_consumer": ("read", "consumers"),
    "beat_consumer": ("consume", "consumers"),
    "receive_facts": ("consume", "consumers"),
    "acknowledge_fact": ("consume", "consumers"),
    "replay_consumer": ("consume", "consumers"),
    "remove_consumer": ("consume", "consumers"),
    "stream_facts": ("consume", "consumers"),
    "list_consumer_deliveries": ("read", "consumers"),
    "list_deliveries": ("read", "consumers"),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Engine("postgresql://nowhere")).openapi()


def operations(document: dict[str, Any], prefix: str = "/api/v1") -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        if path.startswith(prefix):
            for method, operation in methods.items():
                yield path, method, operation


def test_every_operation_is_in_the_table_of_the_tests(document: dict[str, Any]) -> None:
    assert {operation["operationId"] for _, _, operation in operations(document)} == set(COVERED)
    for _, file in COVERED.values():
        assert (TESTS / f"test_api_{file}.py").exists()


def test_every_operation_is_sent_by_the_tests(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        text = (TESTS / f"test_api_{COVERED[operation['operationId']][1]}.py").read_text()
        last = [part for part in path.removeprefix("/api/v1/").split("/") if not part.startswith("{")][-1]
        assert last in text, (method, path)


def test_names_are_unique_over_the_whole_document(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document, "/")]
    assert len(names) == len(set(names))


def test_every_operation_says_how_it_may_be_refused(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        for status in ("401", "403", "404", "406", "422", "429"):
            assert PROBLEM in operation["responses"][status]["content"], (method, path, status)
        if method == "post":
            assert {"413", "415"} <= set(operation["responses"])
        assert operation["security"], (method, path)
        assert operation["description"], (method, path)


def test_every_success_has_a_schema(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        [status] = [status for status in operation["responses"] if status.startswith("2")]
        answer = operation["responses"][status]
        assert (status == "204") != ("content" in answer), (method, path)
        for media, content in answer.get("content", {}).items():
            assert content["schema"], (method, path, media)


def test_every_parameter_is_bounded(document: dict[str, Any]) -> None:
    """No text without a largest length, no number without its range: what is not said cannot be checked."""
    for path, method, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            for schema in _choices(parameter["schema"]):
                if schema.get("type") == "string":
                    assert schema.keys() & {"format", "enum", "maxLength", "pattern"}, (method, path, parameter["name"])
                if schema.get("type") == "integer":
                    assert {"minimum", "maximum"} <= schema.keys(), (method, path, parameter["name"])


def _choices(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for choice in schema.get("anyOf", ()):
        yield from _choices(choice)
    if "items" in schema:
        yield from _choices(schema["items"])


def test_bodies_refuse_what_they_do_not_know(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for path, method, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        for reference in re.findall(r"#/components/schemas/(\w+)", str(body)):
            assert schemas[reference]["additionalProperties"] is False, (method, path)
            assert schemas[reference]["examples"], (method, path)


def test_the_page_of_the_documentation_lists_every_route_with_its_scope(document: dict[str, Any]) -> None:
    page = DOCS.read_text()
    for path, method, operation in operations(document):
        scope = COVERED[operation["operationId"]][0]
        assert re.search(rf"^\| `{method.upper()} {re.escape(path)}` \|.*\| `{scope}` \|$", page, re.MULTILINE), (
            method, path, scope,
        )  # fmt: skip


@pytest.mark.anyio
async def test_a_path_names_all_of_its_methods() -> None:
    app = create_app(Engine("postgresql://nowhere"))
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path, methods in (
            ("/api/v1/definitions", "GET, POST"),
            ("/api/v1/instances", "GET, POST"),
            ("/api/v1/instances/17/cancel", "POST"),
            ("/api/v1/dead-letters/17", "GET"),
            ("/api/v1/dead-letters/requeue", "POST"),
        ):
            answer = await client.patch(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)


# --- scopes --------------------------------------------------------------------------------------------------------


def test_scopes_of_a_token_are_all_it_has() -> None:
    told = Identity("acme", "a", roles=("admin",), scopes=frozenset({"read", "unheard"}))
    assert scopes_of(told) == {Scope.READ}


def test_without_scopes_roles_decide() -> None:
    assert scopes_of(Identity("acme", "a")) == {Scope.READ, Scope.START, Scope.ACT}
    everybody = {Scope.READ, Scope.START, Scope.ACT}
    assert scopes_of(Identity("acme", "a", roles=("consumer",))) == everybody | {Scope.CONSUME}
    assert scopes_of(Identity("acme", "a", roles=("operator",))) == everybody | {Scope.CONSUME, Scope.OPERATE}
    assert scopes_of(Identity("acme", "a", roles=("admin",))) == ALL
    assert scopes_of(Identity("acme", "a", method=DEVELOPMENT)) == ALL
    assert scopes_of(Identity("acme", "a"), {"*": frozenset()}) == frozenset()


# --- cursors -------------------------------------------------------------------------------------------------------


def test_a_cursor_is_read_by_the_list_it_came_from_only() -> None:
    mine = Listing("acme", "instances", flow="a", status=None)
    cursor = mine.cursor("7")
    assert cursor is not None
    assert Listing("acme", "instances", flow="a").position(cursor) == "7"
    assert mine.cursor(None) is mine.position(None) is None
    for other in (Listing("other", "instances", flow="a"), Listing("acme", "tasks", flow="a"), Listing("acme", "x")):
        with pytest.raises(Exception, match="does not belong to this list"):
            other.position(cursor)


@pytest.mark.parametrize("cursor", ["A", "====", "AAAAAAAAAAA", "_" * 11, "é", "AAAA=", "A" * 400])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Exception, match="does not belong to this list"):
        Listing("acme", "instances").position(cursor)
