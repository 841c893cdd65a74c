"""The description of the API is true: what the server answers fits what it says it answers."""

from __future__ import annotations

from typing import Any

import httpx2
import jsonschema_rs
import pytest
from office import ORDER, Office, send, start

pytestmark = pytest.mark.anyio


def fits(document: dict[str, Any], path: str, method: str, answer: httpx2.Response) -> None:
    """The answer is one of those that are documented, in media type, body and headers."""
    documented = document["paths"][path][method]["responses"][str(answer.status_code)]
    for name in documented.get("headers", ()):
        if name not in ("Retry-After",):
            assert name.lower() in answer.headers, name
    if not documented.get("content"):
        assert answer.content == b""
        return
    media_type = answer.headers["content-type"].partition(";")[0]
    schema = documented["content"][media_type]["schema"]
    jsonschema_rs.validate({**schema, "components": document["components"]}, answer.json())


async def test_answers_are_as_they_are_described(office: Office) -> None:
    alice, bob = await office.alice(), await office.bob()
    document = (await alice.get("/openapi.json")).json()
    start_path, advance_path = "/ui/workflows/{workflow_id}/start", "/ui/workflows/{instance_id}/advance"
    one, cancel_path = "/ui/workflows/{instance_id}", "/ui/workflows/{instance_id}/cancel"
    order = await start(alice)
    place = f"/ui/workflows/{order['id']}"

    fits(document, start_path, "post", await alice.post("/ui/workflows/orders.approval/start", json=ORDER))
    fits(document, start_path, "post", await alice.post("/ui/workflows/slow/start?wait=0", json={}))
    fits(document, start_path, "post", await alice.post("/ui/workflows/nothing/start", json={}))
    fits(document, start_path, "post", await bob.post("/ui/workflows/orders.approval/start", json={}))
    fits(document, one, "get", await alice.get(place))
    etag = (await alice.get(place)).headers["etag"]
    fits(document, one, "get", await alice.get(place, headers={"if-none-match": etag}))
    fits(document, "/ui/workflows", "get", await alice.get("/ui/workflows"))
    fits(document, advance_path, "post", await send(bob, order["id"], "nonsense"))
    fits(document, advance_path, "post", await send(bob, order["id"], "approved", approval_notes="ok"))
    fits(document, advance_path, "post", await send(bob, order["id"], "approved", approval_notes="ok"))
    fits(document, one, "get", await alice.get(place))
    fits(document, cancel_path, "post", await alice.post(f"{place}/cancel"))
    fits(document, cancel_path, "post", await alice.post(f"/ui/workflows/{(await start(alice))['id']}/cancel"))
    fits(document, "/health/ready", "get", await alice.get("/health/ready"))
    fits(document, "/metrics", "get", await alice.get("/metrics"))


async def test_examples_fit_their_schemas(office: Office) -> None:
    document = office.server.app.openapi()
    for name, schema in document["components"]["schemas"].items():
        for example in [*schema.get("examples", ()), *([schema["example"]] if "example" in schema else ())]:
            validator = jsonschema_rs.validator_for({**schema, "components": document["components"]})
            assert validator.is_valid(example), name


async def test_every_operation_of_front_ends_says_who_may_call_and_how_it_refuses(office: Office) -> None:
    document = office.server.app.openapi()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "api_key"}
    operations = [
        operation
        for path, methods in document["paths"].items()
        if path.startswith("/ui/")
        for operation in methods.values()
    ]
    assert len(operations) == 6
    assert len({operation["operationId"] for operation in operations}) == 6
    for operation in operations:
        assert operation["security"] == [{"bearer": []}, {"api_key": []}]
        assert {"401", "403", "404", "422", "429"} <= set(operation["responses"])
        assert operation["summary"]
        for parameter in operation["parameters"]:
            assert "anyOf" not in parameter["schema"]
