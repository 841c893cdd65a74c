"""Responses: structs written by msgspec as they are, without the detour over models that only describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def encoded(value: Any) -> bytes:
    return _encode(value)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers=headers, media_type="application/json")
