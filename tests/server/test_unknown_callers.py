"""A flood of wrong keys costs no look-up each, and does not stand in the way of those whose key is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from http_server import listening
from starlette.requests import Request
from watched import Watched

from holdfast import Engine
from holdfast.server.access.limits import RateLimiter
from holdfast.server.app import create_app
from holdfast.server.auth.api_keys import ApiKeyAuthenticator
from holdfast.server.auth.chain import Chain
from holdfast.server.auth.keyring import Keyring
from holdfast.server.http.peers import Proxies, counted
from holdfast.server.settings import ServerSettings
from holdfast.store.pg.reconnecting import StandingSession

BURST = 5
UNOPENED = Engine("postgresql://nobody@127.0.0.1:1/nothing")
ASKED = "/ui/workflows/no-id"  # refused behind the gate, before the engine


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Watched]:
    session = await StandingSession.open(holdfast_dsn)
    yield Watched(session)
    await session.close()


@pytest.fixture
def keyring(session: Watched) -> Keyring:
    return Keyring(session, remembered=0)  # type: ignore[arg-type]  # each good key is looked up each time


@pytest.fixture
async def client(keyring: Keyring) -> AsyncIterator[httpx2.AsyncClient]:
    chain = Chain(api_keys=ApiKeyAuthenticator(keyring))
    app = create_app(UNOPENED, ServerSettings(rate=0.001, burst=BURST), authenticate=chain)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
        yield client


def wrong(number: int) -> dict[str, str]:
    return {"x-api-key": f"hf_{number:012}_{'x' * 43}"}


async def ask(client: httpx2.AsyncClient, headers: dict[str, str], **more: str) -> int:
    return (await client.get(ASKED, headers={**headers, **more})).status_code


@pytest.mark.anyio
async def test_wrong_keys_are_looked_up_as_often_as_an_address_may_ask(
    client: httpx2.AsyncClient, session: Watched
) -> None:
    answers = await asyncio.gather(*(ask(client, wrong(number)) for number in range(40)))
    assert sorted(set(answers)) == [401, 429]
    assert answers.count(401) == session.sent.count("read_api_key") == BURST


@pytest.mark.anyio
async def test_a_key_that_was_good_before_is_served_amid_a_flood(
    client: httpx2.AsyncClient, keyring: Keyring, session: Watched
) -> None:
    good = {"x-api-key": (await keyring.create("acme", "billing", "service:billing")).text}
    assert await ask(client, good) == 422
    for number in range(BURST + 1):
        await ask(client, wrong(number))
    assert await ask(client, wrong(99)) == 429
    assert await ask(client, good) == 422
    assert await ask(client, wrong(99), **{"x-forwarded-for": "192.0.2.7"}) == 401  # another address has its own share


@pytest.mark.anyio
async def test_good_keys_use_up_nothing_of_their_address(
    client: httpx2.AsyncClient, keyring: Keyring, session: Watched
) -> None:
    for number in range(BURST * 2):
        key = await keyring.create("acme", "billing", f"service:{number}")
        assert await ask(client, {"x-api-key": key.text}) == 422


@pytest.mark.anyio
async def test_a_key_that_was_revoked_is_counted_again(
    client: httpx2.AsyncClient, keyring: Keyring, session: Watched
) -> None:
    key = await keyring.create("acme", "billing", "service:billing")
    good = {"x-api-key": key.text}
    assert await ask(client, good) == 422
    await keyring.revoke("acme", key.key.prefix)
    assert [await ask(client, good) for _ in range(BURST + 1)] == [401] * BURST + [429]


@pytest.mark.anyio
async def test_without_a_key_nothing_is_looked_up(client: httpx2.AsyncClient, session: Watched) -> None:
    assert [await ask(client, {}) for _ in range(BURST + 1)] == [401] * BURST + [429]
    assert await ask(client, {"x-api-key": "hf_nonsense"}) == 429
    assert not session.sent


def test_what_is_given_back_never_makes_more_than_the_burst() -> None:
    limiter = RateLimiter(1, 2, clock=lambda: 0.0)
    limiter.give_back("ann")
    for _ in range(2):
        limiter.take("ann")
    limiter.give_back("ann")
    limiter.take("ann")
    with pytest.raises(Exception, match="More than 1 requests"):
        limiter.take("ann")


def request(client: str, *forwarded: str) -> Request:
    headers: list[Any] = [(b"x-forwarded-for", line.encode()) for line in forwarded]
    return Request({"type": "http", "client": (client, 1), "headers": headers})


@pytest.mark.parametrize(
    ("client", "forwarded", "peer"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.1",), "192.0.2.1"),  # no proxy: not believed
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("203.0.113.9, 198.51.100.1",), "198.51.100.1"),  # what the caller wrote comes first
        ("10.0.0.1", ("203.0.113.9", "198.51.100.1, 10.0.0.2"), "198.51.100.1"),
        ("10.0.0.1", ("198.51.100.1:4711",), "198.51.100.1"),
        ("10.0.0.1", ("[2001:db8::1]:4711",), "2001:db8::/64"),
        ("10.0.0.1", ("203.0.113.9, made up",), "10.0.0.1"),
        ("10.0.0.1", ("203.0.113.9, made up, 10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", (",".join(["10.0.0.3"] * 5000),), "10.0.0.3"),
        ("::ffff:10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
    ],
)
def test_a_request_is_counted_under_the_last_address_that_is_no_proxy(
    client: str, forwarded: tuple[str, ...], peer: str
) -> None:
    assert Proxies(("10.0.0.0/8",)).peer_of(request(client, *forwarded)) == peer


def test_all_addresses_of_one_network_are_one_caller() -> None:
    assert counted("2001:db8:0:1::1") == counted("2001:db8:0:1:ffff::9") == "2001:db8:0:1::/64"
    assert counted("2001:db8:0:2::1") != counted("2001:db8:0:1::1")
    assert counted("fe80::1%eth0") == "fe80::/64"
    assert counted("::ffff:192.0.2.1") == "192.0.2.1"
    assert counted("/run/holdfast.sock") == "/run/holdfast.sock"
