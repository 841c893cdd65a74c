"""The keys of an issuer: fetched from a real server, kept, exchanged, and missed when it is gone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from auth_issuer import Clock, KeyServer, document, jwk, key_server, settings, token

from holdfast.errors import Unauthenticated, Unavailable
from holdfast.server.auth import jwks
from holdfast.server.auth.jwks import Jwks
from holdfast.server.auth.jwt import Issuer, JwtAuthenticator
from holdfast.server.auth.key_set import KeySet

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def running() -> Iterator[KeyServer]:
    with key_server() as served:
        yield served


@pytest.fixture
def served(running: KeyServer) -> KeyServer:
    running.fetches = 0
    running.offer(jwk("one"))
    return running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authenticator(served: KeyServer, clock: Clock) -> JwtAuthenticator:
    chosen = settings(jwks_url=served.url)
    return JwtAuthenticator(Issuer(chosen, Jwks(served.url, chosen.algorithms, clock=clock)))


async def test_keys_are_fetched_once(authenticator: JwtAuthenticator, served: KeyServer) -> None:
    for _ in range(5):
        assert (await authenticator.authenticate(token())).subject == "alice"
    assert served.fetches == 1


async def test_many_at_once_share_a_fetch(authenticator: JwtAuthenticator, served: KeyServer) -> None:
    found = await asyncio.gather(*(authenticator.authenticate(token()) for _ in range(20)))
    assert {one.subject for one in found} == {"alice"}
    assert served.fetches == 1


async def test_keys_are_exchanged(authenticator: JwtAuthenticator, served: KeyServer, clock: Clock) -> None:
    assert (await authenticator.authenticate(token("one"))).subject == "alice"
    served.offer(jwk("one"), jwk("two"))
    clock.now += jwks.BETWEEN
    assert (await authenticator.authenticate(token("two"))).subject == "alice"
    assert (await authenticator.authenticate(token("one"))).subject == "alice"
    assert served.fetches == 2
    served.offer(jwk("two"))
    clock.now += jwks.FRESH
    assert (await authenticator.authenticate(token("two"))).subject == "alice"
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(token("one"))


async def test_unknown_keys_cause_a_fetch_a_minute(
    authenticator: JwtAuthenticator, served: KeyServer, clock: Clock
) -> None:
    await authenticator.authenticate(token())
    for _ in range(10):
        for stranger in ("two", "three"):
            with pytest.raises(Unauthenticated):
                await authenticator.authenticate(token("two", header={"kid": stranger}))
        clock.now += jwks.BETWEEN / 5
    assert served.fetches == 2


@pytest.mark.parametrize("trouble", ["status", "redirect", "no JSON", "no list", "no keys", "huge"])
async def test_old_keys_stay_when_the_issuer_is_in_trouble(
    authenticator: JwtAuthenticator, served: KeyServer, clock: Clock, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    await authenticator.authenticate(token())
    match trouble:
        case "status":
            served.status = 500
        case "redirect":
            served.status = 302
        case "no JSON":
            served.body = b"<html>"
        case "no list":
            served.body = b'{"keys": {}}'
        case "no keys":
            served.offer()
        case _:
            served.body = b" " * (jwks.MOST_BYTES + 1) + json.dumps(document(jwk("one"))).encode()
    clock.now += jwks.FRESH
    with caplog.at_level(logging.WARNING, "holdfast.auth"):
        assert (await authenticator.authenticate(token())).subject == "alice"
    assert "were not fetched" in caplog.text
    assert (await authenticator.authenticate(token())).subject == "alice"
    assert served.fetches == 2


async def test_old_keys_do_not_stay_for_ever(authenticator: JwtAuthenticator, served: KeyServer, clock: Clock) -> None:
    await authenticator.authenticate(token())
    served.status = 503
    clock.now += jwks.STALE - 1
    assert (await authenticator.authenticate(token())).subject == "alice"
    clock.now += jwks.BETWEEN
    with pytest.raises(Unavailable) as caught:
        await authenticator.authenticate(token())
    assert (caught.value.code, caught.value.http_status) == ("JWKS_UNAVAILABLE", 503)
    served.offer(jwk("one"))
    clock.now += jwks.BETWEEN
    assert (await authenticator.authenticate(token())).subject == "alice"


async def test_an_issuer_that_never_answered_is_left_alone_for_a_moment(
    authenticator: JwtAuthenticator, served: KeyServer, clock: Clock
) -> None:
    served.status = 500
    for _ in range(5):
        with pytest.raises(Unavailable):
            await authenticator.authenticate(token())
    assert served.fetches == 1
    served.offer(jwk("one"))
    clock.now += jwks.BETWEEN_FAILURES
    assert (await authenticator.authenticate(token())).subject == "alice"


async def test_nobody_there(clock: Clock) -> None:
    with key_server() as gone:
        url = gone.url
    chosen = settings(jwks_url=url)
    with pytest.raises(Unavailable):
        await JwtAuthenticator(Issuer(chosen, Jwks(url, chosen.algorithms, clock=clock))).authenticate(token())


UNUSABLE: dict[str, dict[str, Any]] = {
    "for encryption": jwk("one", use="enc"),
    "only to sign": jwk("one", key_ops=["sign"]),
    "for another algorithm": jwk("one", alg="RS512"),
    "for none": jwk("one", alg="none"),
    "short": jwk("short"),
    "a shared secret": {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "one", "alg": "RS256"},
    "of an unknown kind": {"kty": "XYZ", "kid": "one"},
    "of no kind": {"kid": "one"},
    "without its modulus": {**jwk("one"), "n": None},
    "with a modulus that is none": {**jwk("one"), "n": "!!!"},
    "on another curve": {**jwk("one", "ES256"), "crv": "P-999"},
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_keys_that_are_passed_over(what: str) -> None:
    algorithms = ("RS256", "ES256", "EdDSA")
    assert KeySet(document(UNUSABLE[what]), algorithms).size == 0
    beside = KeySet(document(UNUSABLE[what], "nonsense", jwk("two")), algorithms)  # type: ignore[arg-type]
    assert (beside.size, len(beside.find("two", "RS256"))) == (1, 1)


def test_a_key_on_one_curve_is_not_for_another() -> None:
    keys = KeySet(document(jwk("one", "ES256")), ("ES256", "ES384", "RS256"))
    assert [len(keys.find("one", kind)) for kind in ("ES256", "ES384", "RS256")] == [1, 0, 0]


def test_the_private_half_is_not_taken() -> None:
    keys = KeySet(document(jwk("one", d="AQAB", p="AQAB")), ("RS256",))
    [key] = keys.find("one", "RS256")
    assert not hasattr(key.key, "sign")


def test_keys_under_one_name_are_all_tried_up_to_a_limit() -> None:
    keys = KeySet(document(*(jwk("two", kid="one") for _ in range(50))), ("RS256",))
    assert len(keys.find("one", "RS256")) == 4
