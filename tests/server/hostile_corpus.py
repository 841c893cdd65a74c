"""What somebody sends who wants the server to fall over: bodies, files, schemas, expressions, headers, ids, queries.

Everything here must be answered with a refusal (a status of 400 to 499) unless its list says otherwise.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

DEEP = 100_000
LONG = 900_000  # a little below what a body may have

JSON_BODIES: dict[str, bytes] = {
    "nothing": b" ",
    "half": b'{"a": ',
    "two": b"{} {}",
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "NUL": b'{"flow": "a\\u0000b", "event": "a\\u0000b"}',
    "half a character": b'{"flow": "\\ud800", "event": "\\udfff"}',
    "NaN": b'{"input": NaN}',
    "infinite": b'{"input": 1e999}',
    "huge integer": b'{"input": ' + b"9" * 10_000 + b"}",
    "long fraction": b'{"input": 0.' + b"1" * 500_000 + b"}",
    "large exponent": b'{"input": 1E+999999999}',
    "repeated key": b'{"flow": "a", "flow": "b"}',
    "brackets": b"[" * DEEP,
    "closed brackets": b"[" * DEEP + b"]" * DEEP,
    "braces": b'{"a":' * DEEP,
    "deep in a field": b'{"flow": "orders", "event": "x", "input": ' + b"[" * 65 + b"]" * 65 + b"}",
    "list": b"[]",
    "text": b'"x"',
    "number": b"-0",
    "true": b"true",
    "unknown fields": b'{"__proto__": {}, "constructor": {}, "org": "globex"}',
    "many keys": json.dumps({f"k{n}": n for n in range(50_000)}).encode(),
    "long key": b'{"' + b"k" * LONG + b'": 1}',
    "zipped": gzip.compress(b"0" * 10_000_000),
    "comment": b'{"flow": "orders" /* hello */}',
    "single quotes": b"{'flow': 'orders'}",
    "form": b"flow=orders&input=1",
    "xml": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}

_LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
)
YAML_FILES: dict[str, bytes] = {
    "empty": b"",
    "billion laughs": _LAUGHS.encode(),
    "laughs in a form": f"{_LAUGHS}\nworkflows: [{{id: a, steps: [{{id: s, type: action, form: *a11}}]}}]".encode(),
    "alias of itself": b"workflows: &a [*a]",
    "merge of itself": b"a: &a {<<: *a}\nworkflows: []",
    "brackets": b"[" * DEEP,
    "braces": b"{a: " * DEEP,
    "dashes": b"- " * DEEP,
    "questions": b"? " * DEEP,
    "anchors": b"\n".join(b"k%d: &a%d %d" % (n, n, n) for n in range(50_000)),
    "colons": b":" * LONG,
    "one line": b"workflows: " + b"x" * LONG,
    "python": b"workflows: !!python/object/apply:os.system ['true']",
    "another language": b"workflows: !ruby/hash:ERB {}",
    "binary": b"workflows: !!binary aGk=",
    "documents": b"---\n" * 10_000,
    "directives": b"%TAG ! tag:x,2000:\n" * 10_000 + b"---\nworkflows: []",
    "NUL": b"workflows: a\0b",
    "not UTF-8": b"workflows: \xff\xfe",
    "UTF-16": "workflows: []".encode("utf-16"),
    "numbers": b"workflows: " + b"9" * 100_000,
    "sexagesimal": b"workflows: " + b"1:" * 50_000 + b"1",
    "dates": b"workflows: 9999999999-99-99",
    "repeated key": b"workflows: []\nworkflows: []",
    "tabs": b"workflows:\n\t\t- id: a",
    "JSON": b'{"workflows": [{"id": 5}]}',
    "many workflows": b"workflows:\n" + b"".join(b"  - {id: w%d}\n" % n for n in range(20_000)),
    "many steps": b"workflows:\n  - id: a\n    steps:\n" + b"".join(b"      - {id: s%d}\n" % n for n in range(20_000)),
}


def workflow(**step: Any) -> bytes:
    """A file with one step that is as given."""
    steps = [{"id": "ask", "type": "action", **step}, {"id": "end", "type": "terminal"}]
    ways = [{"from": "ask", "to": "end", "event": "completed"}]
    return json.dumps({"workflows": [{"id": "hostile", "steps": steps, "transitions": ways}]}).encode()


def deciding(condition: Any) -> bytes:
    """A file whose only way has a condition."""
    steps = [{"id": "ask", "type": "action"}, {"id": "end", "type": "terminal"}]
    ways = [{"from": "ask", "to": "end", "event": "completed", "condition": condition}]
    return json.dumps({"workflows": [{"id": "hostile", "steps": steps, "transitions": ways}]}).encode()


CONDITIONS: dict[str, Any] = {
    "empty": "",
    "brackets": "(" * 5000,
    "closed brackets": "(" * 5000 + "1" + ")" * 5000,
    "nots": "!" * 10_000 + "true",
    "minuses": "-" * 10_000 + "1",
    "sums": "+".join(["1"] * 50_000) + " > 1",
    "ands": " && ".join(["true"] * 50_000),
    "lists": "[" * 5000 + "]" * 5000,
    "long path": "workflow" + ".a" * 50_000 + " == 1",
    "long text": '"' + "x" * 500_000 + '" == "y"',
    "long number": "9" * 100_000 + " > 1",
    "python": "__import__('os').system('true')",
    "attributes": "workflow.__class__.__mro__ == 1",
    "lambda": "(lambda: 1)()",
    "template": "{{ workflow }} == 1",
    "assignment": "workflow.a = 1",
    "power": "9 ** 9 ** 9 ** 9 > 1",
    "number instead": 5,
    "list instead": ["true"],
    "NUL": "workflow.a == '\0'",
    "half a character": "workflow.a == '\ud800'",
    "unclosed": "workflow.a == '",
    "unknown function": "exec(workflow.a)",
    "unknown name": "secrets.token == 1",
}

FORMS: dict[str, Any] = {
    "no schema": "x",
    "wrong type": {"type": "nonsense"},
    "wrong limit": {"type": "string", "maxLength": -1},
    "wrong pattern": {"type": "string", "pattern": "("},
    "reference to a file": {"$ref": "file:///etc/passwd"},
    "reference to a host": {"$ref": "http://127.0.0.1:9/schema"},
    "reference to nothing": {"$ref": "#/nowhere"},
    "other dialect": {"$schema": "http://127.0.0.1:9/dialect", "type": "object"},
    "other base": {"$id": "http://127.0.0.1:9/", "$ref": "other"},
    "deep": json.loads('{"not":' * 60 + "{}" + "}" * 60),
}

IDS = [
    "0", "null", "-1", "%00", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..;", "x" * 4000, "%F0%9F%92%A5", "%ED%A0%80", "%FF",
    "1%20or%201=1", "%27%3B%20drop%20table%20holdfast.instances%3B--", "%7B%7B7*7%7D%7D", "%0d%0aSet-Cookie:%20a=b",
    "00000000-0000-0000-0000-00000000000g", "urn:uuid:", "{}", "*", "%25", "9" * 300,
]  # fmt: skip
ODD_BUT_WELL_FORMED = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "%7B01a1e476-adb1-7281-8f18-2702827842a8%7D",
    "01A1E476ADB172818F182702827842A8",
]

QUERIES: dict[str, list[str]] = {
    "/api/v1/instances": [
        "limit=0", "limit=-1", "limit=201", "limit=1e9", "limit=9" + "9" * 400, "limit=", "limit=ten", "cursor=",
        "cursor=!",
        "cursor=AAAA", "cursor=" + "A" * 500, "cursor=" + "A" * 5000, "status=nonsense", "status=", "since=yesterday",
        "since=2026-01-01", "since=99999-01-01T00:00:00Z", "since=0", "attribute=a", "attribute==b", "attribute=a%00=b",
        "&".join(["attribute=a=b"] * 11), "attribute=a=1&attribute=a=2", "flow=", "flow=" + "x" * 201, "flow=%00",
        "key=" + "x" * 501, "business_key=%00", "subject=%00", "flow=%FF%00",
    ],
    "/api/v1/tasks": ["mine=maybe", "mine=true&role=x", "instance=x", "status=x", "role=" + "x" * 201, "assignee=%00"],
    "/api/v1/dead-letters": ["instance=1", "with_reason=%00", "since=1", "source=" + "x" * 300, "limit=1000"],
    "/api/v1/definitions": ["cursor=x", "limit=x"],
    "/api/v1/definitions/orders/versions/0": [""],
    "/api/v1/definitions/orders/versions/-1": [""],
    "/api/v1/definitions/orders/versions/2147483648": [""],
    "/api/v1/definitions/orders/versions/1.5": [""],
    "/api/v1/definitions/orders/versions/%D9%A1": [""],
    "/api/v1/statistics": [
        "version=0", "version=x", "since=x", "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
    ],
    "/ui/workflows": ["status=running", "workflow_id=", "subject_id=%00", "limit=0", "cursor=AAAA", "limit=1&limit=x"],
    "/ui/workflows/orders/advance": [""],
    "/nowhere": ["", "a=" + "b" * 9000],
    "/api/v1/instances/../../etc/passwd": [""],
}  # fmt: skip

START, CANCEL = "POST /api/v1/instances", "POST /api/v1/instances/{}/cancel"
LIST = "GET /api/v1/instances"
HEADERS: dict[str, tuple[str, list[tuple[bytes, bytes]]]] = {
    "many": (LIST, [(b"x-%d" % n, b"y") for n in range(80)]),
    "long": (LIST, [(b"x-long", b"y" * 40_000)]),
    "key too long": (START, [(b"idempotency-key", b"k" * 256)]),
    "key empty": (START, [(b"idempotency-key", b"")]),
    "key with spaces": (START, [(b"idempotency-key", b"a b")]),
    "key not ASCII": (START, [(b"idempotency-key", b"\xe4\xff")]),
    "no version": (CANCEL, [(b"if-match", b"nonsense")]),
    "weak version": (CANCEL, [(b"if-match", b'W/"1"')]),
    "huge version": (CANCEL, [(b"if-match", b'"' + b"9" * 5000 + b'"')]),
    "digits of elsewhere": (CANCEL, [(b"if-match", '"١"'.encode())]),
    "other media type": (START, [(b"content-type", b"text/html")]),
    "other characters": (START, [(b"content-type", b"application/json; charset=utf-7")]),
    "nothing accepted": (LIST, [(b"accept", b"image/png, */*;q=0")]),
}

# What is no HTTP at all, or means different things to different readers: whatever reads it first refuses it.
BROKEN_REQUESTS: dict[str, bytes] = {
    "nonsense": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no host": b"GET /health/live HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /api/v1/instances HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    "negative length": b"POST /api/v1/instances HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n{}",
    "huge length": b"POST /api/v1/instances HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n{}",
    "length and chunks": b"POST /api/v1/instances HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\nhost: a\r\n\r\n",
    "huge chunk": b"POST /api/v1/instances HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    b"FFFFFFFFFFFFFFFFFFFFFF\r\n",
    "header without a colon": b"GET /health/live HTTP/1.1\r\nhost: a\r\nnonsense\r\n\r\n",
    "NUL in a header": b"GET /health/live HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "endless line": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    "endless header": b"GET /health/live HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 200_000 + b"\r\n\r\n",
}

# Schemas that are allowed and could still hurt whoever checks a form with them, each with what is sent.
COSTLY_FORMS: dict[str, tuple[Any, Any]] = {
    "doubled pattern": (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
        {"a": "a" * 5000 + "!"},
    ),
    "pattern that looks back": (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a|a?)+\1(?<!b)$"}}},
        {"a": "a" * 5000 + "!"},
    ),
    "schema in itself": (
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
        json.loads('{"a":' * 60 + '{"b": 1}' + "}" * 60),
    ),
    "many ways": (
        {"type": "object", "properties": {"a": {"anyOf": [{"const": n} for n in range(1000)]}}},
        {"a": [0] * 1000},
    ),
    "unique things": (
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"a": [[n // 2] for n in range(20_000)]},
    ),
}

# What people send where a condition compares `input.amount` with a number.
AMOUNTS: list[Any] = ["101", "x" * 100_000, [101], {"a": 101}, None, True, -0.0, 1e308, 2**63 - 1, [[[]]]]
