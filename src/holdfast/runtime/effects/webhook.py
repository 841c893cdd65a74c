"""Webhooks: one signed POST per attempt, the same bytes under the same key each time."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast import webhooks
from holdfast.core.model.timestamps import to_iso
from holdfast.errors import HoldfastError, PayloadError
from holdfast.payloads import decode, encode
from holdfast.runtime.effects.addresses import AllowList, find_address, read_target
from holdfast.runtime.effects.delivery import Delivered, Delivery, EffectFailed
from holdfast.runtime.effects.evidence import Answer, kept_body, kept_headers, message
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.effects.secrets import Secrets

if TYPE_CHECKING:
    from holdfast.runtime.effects.transport import Transport

DEFAULT_SECRET: Final = "webhook"  # noqa: S105 - the name of one
MOST_KEYS: Final = 2
_WORTH_A_RETRY: Final = frozenset({408, 409, 423, 425, 429})
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]{0,8000}")
_OURS: Final = frozenset({
    "connection", "content-length", "content-type", "host", "idempotency-key", "te", "trailer", "transfer-encoding",
    "upgrade", "user-agent", webhooks.ID, webhooks.TIMESTAMP, webhooks.SIGNATURE,
})  # fmt: skip


class WebhookKind:
    """`url`, `secret`, `signed`, `headers`, `type` and `envelope` in the config; see docs/effects.md."""

    def __init__(self, options: EffectOptions) -> None:
        self._options = options
        self._allowed = AllowList(options.allow)
        self._transport: Transport | None = None

    async def deliver(self, delivery: Delivery) -> Delivered:
        transport = await self._open_transport()
        secrets = Secrets(self._options.secrets, delivery.org)
        began = time.monotonic()
        answer = Answer()
        try:
            url, body = _request(delivery)
            target = read_target(url)
            headers = _headers(delivery, body, secrets)
            address = await find_address(target, self._allowed, self._options.resolve, delivery.attempt)
            delivery.check()
            await transport.post(target, address, headers, body, answer)
            output = _judge(answer, secrets)
        except EffectFailed as failure:
            failure.message = message(failure.message, secrets)
            failure.evidence = _evidence(answer, secrets, began)
            raise
        return Delivered(output, _evidence(answer, secrets, began))

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    async def _open_transport(self) -> Transport:
        """The client takes a tenth of a second to load: in a thread, and only where a webhook is sent."""
        loaded = await asyncio.to_thread(import_module, "holdfast.runtime.effects.transport")
        if self._transport is None:
            self._transport = cast("Transport", loaded.Transport(self._options))
        return self._transport


def _request(delivery: Delivery) -> tuple[Any, bytes]:
    """The target and the body: the same bytes on every attempt."""
    config, data = delivery.config, delivery.data
    url: Any = config.get("url")
    if url is None and isinstance(data, dict):
        given = cast("dict[str, Any]", data)
        url, data = given.get("url"), given.get("body")
    if config.get("envelope") is False:
        return url, encode(data, "the body")
    stamp = to_iso(delivery.created_at)
    return url, encode({"type": config.get("type", delivery.kind), "timestamp": stamp, "data": data}, "the body")


def _headers(delivery: Delivery, body: bytes, secrets: Secrets) -> dict[str, str]:
    headers = _own_headers(delivery.config, secrets)
    now = int(time.time())
    headers |= {
        "content-type": "application/json",
        "idempotency-key": delivery.key,
        "holdfast-attempt": str(delivery.attempt),
        webhooks.ID: delivery.key,
        webhooks.TIMESTAMP: str(now),
    }
    if delivery.trace is not None:
        headers["traceparent"] = delivery.trace
    if delivery.config.get("signed") is not False:
        keys = secrets.require(delivery.config.get("secret", DEFAULT_SECRET)).split()[:MOST_KEYS]
        try:
            headers[webhooks.SIGNATURE] = webhooks.sign(delivery.key, now, body, keys)
        except HoldfastError as unusable:
            raise EffectFailed(unusable.code, f"{unusable.message} {unusable.hint}") from None
    return headers


def check_webhook(config: dict[str, Any]) -> None:
    """Check a config as far as any process can tell: secrets and addresses are those of the process that delivers."""
    read_target(config.get("url"))
    if not isinstance(config.get("signed", True), bool):
        raise _config("`signed` is true or false")
    if not isinstance(config.get("secret", DEFAULT_SECRET), str):
        raise _config("`secret` is the name of one")
    for name, value in _wanted_headers(config):
        hidden = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        if not isinstance(value if hidden is None else hidden.get("secret"), str):
            raise _config(f"the header {name} is neither text nor a secret")


def _wanted_headers(config: dict[str, Any]) -> list[tuple[str, Any]]:
    wanted = config.get("headers")
    if wanted is None:
        return []
    if not isinstance(wanted, dict):
        raise _config("`headers` is a mapping")
    headers = [*cast("dict[str, Any]", wanted).items()]
    for name, _ in headers:
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise _config(f"{ascii(name)[:80]} is not a header a definition may set")
    return headers


def _own_headers(config: dict[str, Any], secrets: Secrets) -> dict[str, str]:
    """Headers of the definition: text, or `{"secret": name, "prefix": "Bearer "}`."""
    headers: dict[str, str] = {}
    for name, value in _wanted_headers(config):
        if isinstance(value, dict):
            if "url" not in config:
                raise _config("a secret is not sent to an address that comes with the data")
            hidden = cast("dict[str, Any]", value)
            value = str(hidden.get("prefix", "")) + secrets.require(hidden.get("secret"))
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise _config(f"the header {name} has a value that is not plain text")
        headers[name.lower()] = value
    return headers


def _judge(answer: Answer, secrets: Secrets) -> dict[str, Any]:
    """The output of a good answer; a typed failure for any other."""
    status = answer.status or 0
    if 200 <= status < 300:
        return {"status": status, "body": _content(answer, secrets), "truncated": answer.truncated}
    if 300 <= status < 400:
        raise EffectFailed(
            "EFFECT_REDIRECTED", f"The target answered {status}; redirects are not followed.", final=True
        )
    raise EffectFailed(
        "EFFECT_HTTP_STATUS",
        f"The target answered {status}.",
        final=status < 500 and status not in _WORTH_A_RETRY,
        retry_after=_retry_after(answer.header("retry-after")),
    )


def _content(answer: Answer, secrets: Secrets) -> Any:
    """JSON where it is JSON that can be stored; otherwise nothing, the evidence has the beginning of it."""
    if answer.truncated or "json" not in answer.header("content-type").lower():
        return None
    try:
        return decode(secrets.hide_bytes(answer.body), "the answer")
    except PayloadError:
        return None


def _retry_after(text: str) -> float | None:
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time())


def _evidence(answer: Answer, secrets: Secrets, began: float) -> dict[str, Any]:
    took = {"milliseconds": round((time.monotonic() - began) * 1000)}
    if answer.status is None:
        return took
    return {
        "status": answer.status,
        "headers": kept_headers(answer.headers, secrets),
        "body": kept_body(answer.body, secrets),
        "truncated": answer.truncated,
        **took,
    }


def _config(why: str) -> EffectFailed:
    return EffectFailed("EFFECT_CONFIG_INVALID", f"The webhook is not set up properly: {why}.", final=True)
