"""`holdfast keys`: keys with which programs use the API. The organisation is --tenant, else HOLDFAST_ORG."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import msgspec
import typer

from holdfast.cli.render.output import say, show, show_all, table
from holdfast.doors.durations import read_duration
from holdfast.errors import Refused
from holdfast.runtime.engine import Engine
from holdfast.server.auth.keyring import USUAL_SCOPES, IssuedKey, Keyring
from holdfast.store.api_keys import ApiKey
from holdfast.store.pg.reconnecting import StandingSession

keys = typer.Typer(help="Make, list, replace and end API keys.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="The organisation the key belongs to.")]
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="The key's public half, between its underscores.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it; kept with the key.")]
Expires = Annotated[str | None, typer.Option("--expires", help="How long it works, such as 90d or 12h.")]


@keys.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    tenant: Tenant = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Whom it stands for; key:NAME without.")] = None,
    partition: Annotated[str, typer.Option("--partition", help="The partition it belongs to.")] = "",
    scope: Annotated[list[str] | None, typer.Option("--scope", help="What it is for; may be repeated.")] = None,
    role: Annotated[list[str] | None, typer.Option("--role", help="A role it has; may be repeated.")] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="A capability it has; may be repeated.")
    ] = None,
    expires: Expires = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Make a key; its text is shown this once. Without --scope it may read, start and act."""

    async def make() -> IssuedKey:
        async with _keyring(tenant) as (keyring, org):
            return await keyring.create(
                org,
                name,
                subject or f"key:{name}",
                partition=partition,
                roles=tuple(role or ()),
                capabilities=tuple(capability or ()),
                scopes=tuple(scope or USUAL_SCOPES),
                lifetime=_seconds(expires),
                by=by,
            )

    _show_issued(asyncio.run(make()), json=json)


@keys.command("list")
def list_keys(
    tenant: Tenant = None,
    all: Annotated[bool, typer.Option("--all", help="Also those that no longer work.")] = False,
    after: Annotated[str | None, typer.Option("--after", help="The last key of the page before.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 100,
    json: Json = False,
) -> None:
    """The keys of an organisation, newest first, without their secrets."""

    async def find() -> list[ApiKey]:
        async with _keyring(tenant) as (keyring, org):
            return await keyring.list(org, ended=all, after=after, limit=limit)

    found = asyncio.run(find())
    if json:
        show_all([_plain(key) for key in found])
    elif found:
        table(("PREFIX", "NAME", "SUBJECT", "SCOPES", "LAST USED", "EXPIRES"), [_row(key) for key in found])
    else:
        say("There are no keys.")


@keys.command()
def rotate(
    prefix: Prefix,
    tenant: Tenant = None,
    overlap: Annotated[str, typer.Option("--overlap", help="How long the old key still works.")] = "24h",
    expires: Expires = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Make a second key with the same rights; the first one ends when the overlap is over."""

    async def replace() -> IssuedKey:
        async with _keyring(tenant) as (keyring, org):
            return await keyring.rotate(
                org, prefix, overlap=_seconds(overlap) or 0.0, lifetime=_seconds(expires), by=by
            )

    _show_issued(asyncio.run(replace()), json=json)


@keys.command()
def revoke(prefix: Prefix, tenant: Tenant = None, by: By = None, json: Json = False) -> None:
    """End a key at once."""

    async def end() -> None:
        async with _keyring(tenant) as (keyring, org):
            await keyring.revoke(org, prefix, by=by)

    asyncio.run(end())
    if json:
        show({"revoked": prefix}, json=True)
    else:
        say(f"The key {prefix} no longer works.")


@asynccontextmanager
async def _keyring(tenant: str | None) -> AsyncGenerator[tuple[Keyring, str]]:
    async with Engine(org=tenant) as engine:
        session = await StandingSession.open(engine.dsn)
        try:
            yield Keyring(session), engine.org
        finally:
            await session.close()


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = 0.0 if text == "0" else read_duration(text)
    if found is None:
        raise Refused(f"{text!r} is not a duration.", code="LIFETIME_INVALID", hint="Write 90d, 12h or 30m.")
    return found


def _show_issued(issued: IssuedKey, *, json: bool) -> None:
    facts = {"key": issued.text, **_plain(issued.key)}
    if json:
        show(facts, json=True)
        return
    show({name: _written(value) for name, value in facts.items()}, json=False)
    say("Keep the key now: it is stored nowhere and cannot be shown again.")


def _plain(key: ApiKey) -> dict[str, Any]:
    return msgspec.to_builtins(key)


def _written(value: Any) -> Any:
    return (", ".join(cast("list[str]", value)) if isinstance(value, list) else value) or None


def _row(key: ApiKey) -> tuple[str, ...]:
    used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
    if key.revoked_at:
        ends = f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
    else:
        ends = f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "never"
    return key.prefix, key.name, key.subject, ",".join(key.scopes), used, ends
