"""Documents: what can be read, what is refused and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from invoker_service import document, json_body, parameter
from tests.schema_attacks import UNPUBLISHABLE

from holdfast.errors import DefinitionError, HoldfastError
from holdfast.runtime.invokers.documents import read_document
from holdfast.runtime.invokers.errors import CallRefused
from holdfast.runtime.invokers.operations import read_operations
from holdfast.runtime.invokers.requests import build_request
from holdfast.runtime.invokers.servers import find_server

TEXT = """
openapi: 3.0.3
info: {title: Orders, version: '1'}
paths:
  /orders/{id}:
    parameters:
      - {$ref: '#/components/parameters/Id'}
    get:
      operationId: getOrder
      responses:
        200: {description: It, content: {application/json: {example: {on: 2026-01-01}}}}
components:
  parameters:
    Id: {name: id, in: path, required: true, schema: {$ref: '#/components/schemas/Id'}}
  schemas:
    Id: {type: string, pattern: '^ord-'}
"""


def operations(source: Any) -> dict[str, Any]:
    return {operation.id: operation for operation in read_operations(read_document(source))}


def test_yaml_json_files_and_mappings_are_the_same_document(tmp_path: Path) -> None:
    given = document({"operationId": "list"}, {"operationId": "add", "method": "post", "requestBody": json_body()})
    file = tmp_path / "service.yaml"
    file.write_text(TEXT)
    assert operations(given).keys() == {"list", "add"}
    assert operations(file).keys() == operations(TEXT).keys() == {"getOrder"}


def test_a_reference_is_followed_to_its_schema() -> None:
    order = operations(TEXT)["getOrder"]
    assert build_request(order, {"id": "ord-1"}).path == "/orders/ord-1"
    with pytest.raises(CallRefused, match="does not fit"):
        build_request(order, {"id": "1"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("openapi: [", "neither JSON nor YAML.*line 1"),
        ("just a text", "not a mapping"),
        ({"openapi": "2.0"}, "version 3.0 or 3.1"),
        ({"swagger": "2.0", "paths": {}}, "version 3.0 or 3.1"),
        (document(), "no operation"),
        (document({"operationId": "a"}, {"operationId": "a", "path": "/b"}), "there twice"),
        (document({"operationId": "a", "path": "/x/{id}"}), "no parameter for 'id'"),
        (document({"operationId": "a", "path": "//evil.example/x"}), "no path template"),
        (document({"operationId": "a", "path": "/x?y=1"}), "no path template"),
        (document({"operationId": "a", "parameters": [parameter("x", "body")]}), "no place among"),
        (document({"operationId": "a", "parameters": [parameter("x\r\ny", "header")]}), "no name for a header"),
        (document({"operationId": "a", "parameters": [{"$ref": "https://evil.example/p.json"}]}), "nothing is fetched"),
        (document({"operationId": "a", "parameters": [{"$ref": "#/components/nothing"}]}), "leads nowhere"),
        (document({"operationId": "a", "parameters": [parameter("x", "query", {"type": 5})]}), "no JSON Schema"),
        (document({"operationId": "a", "parameters": [parameter("x", "query", {"$ref": "other.yaml#/x"})]}), "fetched"),
        (document({"operationId": "bad name"}), "no operationId"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_a_reason(given: Any, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint) as refused:
        operations(given)
    assert refused.value.code == "OPENAPI_INVALID"


def test_what_is_not_asked_for_is_not_looked_into() -> None:
    given = document({"operationId": "a"}, {"operationId": "b", "path": "/b", "parameters": [{"$ref": "other.json"}]})
    assert [found.id for found in read_operations(read_document(given), ["a"])] == ["a"]
    with pytest.raises(DefinitionError, match="no operation 'c'"):
        read_operations(read_document(given), ["a", "c"])


def test_references_in_a_circle_are_refused() -> None:
    circle = {"parameters": {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}}
    with pytest.raises(DefinitionError, match="leads back to itself"):
        operations(
            document({"operationId": "a", "parameters": [{"$ref": "#/components/parameters/a"}]}, components=circle)
        )


@pytest.mark.parametrize("shape", [{"$ref": "#/components/schemas/b"}, {"anyOf": [{"$ref": "#/components/schemas/b"}]}])
def test_a_schema_made_of_itself_is_refused(shape: Any) -> None:
    schemas = {"a": shape, "b": {"allOf": [{"$ref": "#/components/schemas/a"}]}}
    with pytest.raises(DefinitionError, match="never ends"):
        operations(
            document(
                {"operationId": "a", "method": "post", "requestBody": json_body({"$ref": "#/components/schemas/a"})},
                components={"schemas": schemas},
            )
        )


def test_a_tree_may_contain_trees() -> None:
    reference = {"$ref": "#/components/schemas/tree"}
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": reference}},
    }
    add = operations(
        document(
            {"operationId": "add", "method": "post", "requestBody": json_body(reference)},
            components={"schemas": {"tree": tree}},
        )
    )["add"]
    assert build_request(add, {"name": "a", "parts": [{"name": "b"}]}).content == b'{"name":"a","parts":[{"name":"b"}]}'
    with pytest.raises(CallRefused, match=r"\$\.parts\[0\]\.name"):
        build_request(add, {"name": "a", "parts": [{"name": 5}]})


def test_the_dialect_of_3_0_is_understood() -> None:
    schema = {
        "type": "object",
        "required": ["id", "note", "amount"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "note": {"type": "string", "nullable": True},
            "amount": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9223372036854775807},
        },
    }
    given = document({"operationId": "add", "method": "post", "requestBody": json_body(schema)}) | {"openapi": "3.0.1"}
    add = operations(given)["add"]
    assert build_request(add, {"note": None, "amount": 1}).content == b'{"note":null,"amount":1}'
    with pytest.raises(CallRefused, match="amount"):
        build_request(add, {"note": None, "amount": 0})


def test_aliases_that_multiply_are_refused_in_time() -> None:
    lines = ["openapi: 3.1.0", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DefinitionError, match="too deep or too large"):
        operations("\n".join(lines))


@pytest.mark.parametrize("name", ["repetitions of repetitions", "a thousand long patterns"])
def test_patterns_of_a_document_are_bounded(name: str) -> None:
    given = document({"operationId": "add", "method": "post", "requestBody": json_body(UNPUBLISHABLE[name])})
    with pytest.raises(DefinitionError, match="patterns have more than 20000 characters"):
        operations(given)


@pytest.mark.parametrize("name", ["59 nested references", "59 nested references of a schema with itself"])
def test_references_of_a_document_are_checked_by_a_helper_that_ends(name: str) -> None:
    parts: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/components/schemas/a{n + 1}"}] * 2} for n in range(59)}
    if "itself" in name:
        parts["a0"]["properties"] = {"child": {"$ref": "#/components/schemas/a0"}}
    schemas = {**parts, "a59": {"type": "object", "properties": {"n": {}}}}
    body = json_body({"$ref": "#/components/schemas/a0"})
    given = document({"operationId": "add", "method": "post", "requestBody": body}, components={"schemas": schemas})
    add = operations(given)["add"]
    with pytest.raises(HoldfastError) as refusal:
        build_request(add, {"n": 1})
    assert refusal.value.code == "SCHEMA_TOO_COSTLY"


def test_something_that_contains_itself_is_refused() -> None:
    with pytest.raises(DefinitionError, match="too deep"):
        operations("openapi: 3.1.0\nx: &x [*x]")


@pytest.mark.parametrize(
    ("servers", "origin"),
    [
        ([{"url": "https://api.example.com/v1/"}], "https://api.example.com:443"),
        ([{"url": "http://127.0.0.1:8000"}], "http://127.0.0.1:8000"),
        ([{"url": "http://[::1]:8000"}], "http://[::1]:8000"),
        (
            [{"url": "https://{region}.example.com", "variables": {"region": {"default": "eu"}}}],
            "https://eu.example.com:443",
        ),
    ],
)
def test_a_server_of_the_document_is_used_if_it_is_safe(servers: Any, origin: str) -> None:
    assert find_server(None, read_document(document({"operationId": "a"}, servers=servers))).origin == origin


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.evil.example",
        "/relative",
        "ftp://x",
        "https://a@b/",
    ],
)
def test_a_server_of_the_document_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        find_server(None, read_document(document({"operationId": "a"}, servers=[{"url": url}])))
    assert refused.value.code == "OPENAPI_SERVER_INVALID"


def test_the_word_of_the_operator_counts_also_in_private_networks() -> None:
    given = read_document(document({"operationId": "a"}, servers=[{"url": "https://api.example.com"}]))
    assert find_server("http://10.0.0.1:8080/base/", given).origin == "http://10.0.0.1:8080"
    with pytest.raises(DefinitionError, match="user or password"):
        find_server("http://user:secret@10.0.0.1", given)
