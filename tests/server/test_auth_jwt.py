"""Tokens: those of the issuer are believed, and whatever else was ever sent instead of one is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from functools import cache
from typing import Any

import jwt
import pytest
from auth_issuer import (
    AUDIENCE,
    ISSUER,
    assembled,
    claims,
    document,
    jwk,
    private_key,
    public_pem,
    settings,
    signed,
    token,
)
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError, Unauthenticated
from holdfast.server.access.identity import Identity
from holdfast.server.auth.jwt import MOST_BYTES, JwtAuthenticator
from holdfast.server.auth.jwt_settings import Claims, JwtSettings

pytestmark = pytest.mark.anyio

SECRET = "a shared secret of at least thirty-two bytes"
ALL_KINDS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@cache
def ready() -> JwtAuthenticator:
    return JwtAuthenticator(settings())


async def believed(text: str, **changes: Any) -> Identity:
    return await (JwtAuthenticator(settings(**changes)) if changes else ready()).authenticate(text)


async def refusal(text: str, **changes: Any) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as caught:
        await believed(text, **changes)
    assert caught.value.http_status == 401
    assert caught.value.challenge == 'Bearer realm="holdfast", error="invalid_token"'
    for part in (part for part in text.split(".") if len(part) >= 12):
        assert part not in str(caught.value)
    return caught.value


# --- what is believed -----------------------------------------------------------------------------------------------


async def test_a_good_token_says_who_is_calling() -> None:
    assert await believed(token()) == Identity(
        tenant="acme",
        subject="alice",
        partition="eu",
        roles=("approver",),
        capabilities=frozenset({"orders:approve:*"}),
        method="jwt",
    )


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_every_algorithm_with_a_public_key(kind: str) -> None:
    keys = document(jwk("one", kind))
    assert (await believed(token("one", kind), jwks=keys, algorithms=(kind,))).subject == "alice"


@pytest.mark.parametrize("kind", ["RS256", "PS384", "ES256", "EdDSA"])
async def test_a_single_key_in_pem(kind: str) -> None:
    key = public_pem("one", kind)
    assert (await believed(token("one", kind), key=key, algorithms=(kind,))).subject == "alice"
    await refusal(token("two", kind), key=key, algorithms=(kind,))


async def test_a_shared_secret() -> None:
    text = jwt.encode(claims(), SECRET, algorithm="HS256")
    assert (await believed(text, key=SECRET, algorithms=("HS256",))).subject == "alice"
    await refusal(jwt.encode(claims(), SECRET[::-1], algorithm="HS256"), key=SECRET, algorithms=("HS256",))


async def test_a_token_without_a_key_name_when_there_is_one_key() -> None:
    text = jwt.encode(claims(), private_key("one"), algorithm="RS256")
    assert (await believed(text)).subject == "alice"
    await refusal(text, jwks=document(jwk("one"), jwk("two")))


async def test_one_of_several_audiences() -> None:
    assert (await believed(token(aud=["billing", AUDIENCE]))).subject == "alice"


async def test_clocks_that_differ_a_little() -> None:
    now = int(time.time())
    assert (await believed(token(exp=now - 10, nbf=now + 10))).subject == "alice"
    assert (await refusal(token(exp=now - 10), leeway=0.0)).code == "TOKEN_EXPIRED"


async def test_issuers_have_their_own_keys_and_audiences() -> None:
    other = JwtSettings(
        issuer="https://other.example", audience=("other",), jwks=document(jwk("two", "ES256")), algorithms=("ES256",)
    )
    both = JwtAuthenticator(settings(), other)
    assert (await both.authenticate(token())).tenant == "acme"
    theirs = {"iss": "https://other.example", "aud": "other"}
    assert (await both.authenticate(token("two", "ES256", **theirs))).tenant == "acme"
    for wrong in (token(**theirs), token("two", "ES256"), token(iss="https://third.example")):
        with pytest.raises(Unauthenticated):
            await both.authenticate(wrong)


async def test_names_of_claims_are_chosen() -> None:
    names = Claims(tenant="https://acme.example/tenant", subject="email", roles="realm_access.roles", partition="")
    said = {
        "https://acme.example/tenant": "globex",
        "email": "bob@globex.example",
        "realm_access": {"roles": ["a", "b"]},
        "tenant_id": None,
    }
    found = await believed(token(**said), claims=names)
    assert (found.tenant, found.subject, found.roles, found.partition) == (
        "globex",
        "bob@globex.example",
        ("a", "b"),
        "",
    )


async def test_lists_may_be_written_as_words() -> None:
    found = await believed(token(roles="clerk approver", capabilities="orders:read, orders:write"))
    assert found.roles == ("clerk", "approver")
    assert found.capabilities == {"orders:read", "orders:write"}


async def test_scopes_count_where_they_are_asked_for() -> None:
    text = token(scope="openid holdfast:read holdfast:act")
    assert (await believed(text)).scopes == frozenset()
    named = Claims(scopes="scope")
    assert (await believed(text, claims=named, scope_prefix="holdfast:")).scopes == {"read", "act"}
    # Empty would mean those of the roles: a token without any must not get more than one with some.
    assert (await believed(token(scope="openid"), claims=named, scope_prefix="holdfast:")).scopes == {"none"}
    assert (await believed(token(), claims=named)).scopes == {"none"}


# --- what is not ----------------------------------------------------------------------------------------------------

NOW = int(time.time())
WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 3600},
    "never expires": {"exp": None},
    "an expiry that is no number": {"exp": "tomorrow"},
    "an expiry beyond all numbers": {"exp": float("inf")},
    "an expiry that is not a number": {"exp": float("nan")},
    "not yet": {"nbf": NOW + 3600},
    "a beginning that is no number": {"nbf": "soon"},
    "issued in the future": {"iat": NOW + 3600},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "an issuer in a list": {"iss": [ISSUER]},
    "an issuer with a slash more": {"iss": f"{ISSUER}/"},
    "another audience": {"aud": "billing"},
    "no audience": {"aud": None},
    "an empty audience": {"aud": []},
    "an audience that only begins alike": {"aud": AUDIENCE + "2"},
    "an audience that is no text": {"aud": {"x": AUDIENCE}},
    "no tenant": {"tenant_id": None},
    "an empty tenant": {"tenant_id": ""},
    "a tenant of the engine": {"tenant_id": "_system"},
    "a tenant that is a number": {"tenant_id": 7},
    "a tenant in a list": {"tenant_id": ["acme"]},
    "a tenant that is true": {"tenant_id": True},
    "a tenant with NUL": {"tenant_id": "ac\0me"},
    "a tenant with half a character": {"tenant_id": "ac\ud800me"},
    "a tenant with a line break": {"tenant_id": "acme\n"},
    "a tenant that is too long": {"tenant_id": "a" * 201},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is a number": {"sub": 1},
    "the subject of the engine": {"sub": "system"},
    "a subject that is too long": {"sub": "s" * 501},
    "a partition that is a number": {"partition_id": 3},
    "roles that are a number": {"roles": 5},
    "roles with a number": {"roles": ["a", 5]},
    "roles in an object": {"roles": {"a": True}},
    "an empty role": {"roles": [""]},
    "too many roles": {"roles": [f"role-{n}" for n in range(1001)]},
    "capabilities that are true": {"capabilities": True},
    "a capability with NUL": {"capabilities": ["a\0"]},
}


@pytest.mark.parametrize("what", WRONG_CLAIMS)
async def test_claims_that_are_refused(what: str) -> None:
    await refusal(token(**WRONG_CLAIMS[what]))


async def test_why_a_token_is_refused() -> None:
    assert (await refusal(token(exp=NOW - 3600))).code == "TOKEN_EXPIRED"
    assert (await refusal(token(tenant_id=None))).code == "TENANT_MISSING"
    assert (await refusal(token(aud="billing"))).code == "TOKEN_INVALID"
    # An expired token of somebody else is not told to be expired: nothing in it is believed before its signature.
    assert (await refusal(token("two", header={"kid": "one"}, exp=NOW - 3600))).code == "TOKEN_INVALID"


async def test_a_beginning_can_be_asked_for() -> None:
    assert (await believed(token(nbf=None))).subject == "alice"
    await refusal(token(nbf=None), require_nbf=True)


def hmac_signed(secret: bytes, kind: str = "HS256", **header: Any) -> str:
    """By hand: libraries refuse to use a public key as a secret."""
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[kind]
    body = assembled({"alg": kind, "typ": "JWT", **header}, claims()).rpartition(".")[0]
    return f"{body}.{base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), digest)).rstrip(b'=').decode()}"


def swapped(text: str, *, header: Any = None, payload: Any = None) -> str:
    """The signature of one token under another header or payload."""
    first, second, signature = text.split(".")
    first = assembled(header, {}).split(".")[0] if header is not None else first
    second = assembled(payload, {}).split(".")[0] if payload is not None else second
    return f"{first}.{second}.{signature}"


CONFUSED = {
    "no algorithm": lambda: assembled({"alg": "none", "typ": "JWT"}, claims()),
    "None": lambda: assembled({"alg": "None"}, claims()),
    "NONE": lambda: assembled({"alg": "NONE"}, claims()),
    "nOnE": lambda: assembled({"alg": "nOnE", "kid": "one"}, claims()),
    "none with a signature": lambda: swapped(token(), header={"alg": "none", "kid": "one"}),
    "an empty algorithm": lambda: assembled({"alg": "", "kid": "one"}, claims()),
    "no word about the algorithm": lambda: assembled({"kid": "one"}, claims(), b"x" * 256),
    "an algorithm that is null": lambda: assembled({"alg": None, "kid": "one"}, claims(), b"x" * 256),
    "an algorithm in a list": lambda: assembled({"alg": ["RS256"], "kid": "one"}, claims(), b"x" * 256),
    "an algorithm that is an object": lambda: assembled({"alg": {}, "kid": "one"}, claims(), b"x" * 256),
    "lower case": lambda: swapped(token(), header={"alg": "rs256", "kid": "one"}),
    "the public key as a secret": lambda: hmac_signed(public_pem("one").encode(), kid="one"),
    "the public key as a secret, stripped": lambda: hmac_signed(public_pem("one").strip().encode(), kid="one"),
    "the public key as a longer secret": lambda: hmac_signed(public_pem("one").encode(), "HS512", kid="one"),
    "the modulus as a secret": lambda: hmac_signed(jwk("one")["n"].encode(), kid="one"),
    "an empty secret": lambda: hmac_signed(b"", kid="one"),
    "an algorithm not allowed": lambda: jwt.encode(
        claims(), private_key("one"), algorithm="RS512", headers={"kid": "one"}
    ),
    "a padding not allowed": lambda: jwt.encode(claims(), private_key("one"), "PS256", headers={"kid": "one"}),
    "another kind of key": lambda: token("curve", "ES256", header={"kid": "one"}),
    "a key of somebody else": lambda: token("two", header={"kid": "one"}),
    "an unknown key": lambda: token("two"),
    "a key name that is a path": lambda: token(header={"kid": "../../../../dev/null"}),
    "a key name that is an address": lambda: token(header={"kid": "http://127.0.0.1:1/keys"}),
    "a key name that is a statement": lambda: token(header={"kid": "one' or '1'='1"}),
    "a key name that is very long": lambda: token(header={"kid": "k" * 5000}),
    "a key name that is empty": lambda: token(header={"kid": ""}),
    "a key name that is a number": lambda: assembled({"alg": "RS256", "kid": 1}, claims(), b"x" * 256),
    "a key name in a list": lambda: assembled({"alg": "RS256", "kid": ["one"]}, claims(), b"x" * 256),
    "its own key": lambda: token("two", header={"kid": "two", "jwk": jwk("two")}),
    "the address of its key": lambda: token("two", header={"jku": "http://127.0.0.1:1/keys"}),
    "its own certificate": lambda: token("two", header={"x5c": ["MIIB"], "x5u": "http://127.0.0.1:1/cert"}),
    "something critical": lambda: token(header={"crit": ["exp"], "exp": 1}),
    "critical and empty": lambda: token(header={"crit": []}),
    "a payload that is not coded": lambda: token(header={"b64": False, "crit": ["b64"]}),
    "a logout token": lambda: token(header={"typ": "logout+jwt"}),
    "a proof of possession": lambda: token(header={"typ": "dpop+jwt"}),
    "a type that is no text": lambda: assembled({"alg": "RS256", "kid": "one", "typ": 5}, claims(), b"x" * 256),
    "another payload": lambda: swapped(token(), payload=claims(tenant_id="globex")),
    "another header": lambda: swapped(token(), header={"alg": "RS256", "kid": "one", "x": 1}),
    "without its signature": lambda: token().rpartition(".")[0] + ".",
    "with half its signature": lambda: token()[:-100],
    "with a signature of zeros": lambda: token().rpartition(".")[0] + "." + "A" * 342,
    "an encrypted token": lambda: assembled({"alg": "RSA-OAEP", "enc": "A256GCM"}, claims()) + ".x.y",
}  # fmt: skip


@pytest.mark.parametrize("what", CONFUSED)
async def test_signatures_that_are_refused(what: str) -> None:
    await refusal(CONFUSED[what]())


MALFORMED = [
    "", " ", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "null", "{}", "[]", "undefined", "Bearer", "é.é.é",
    "\0.\0.\0",
    "=.=.=", "e30.e30.", "e30.e30.e30", "bnVsbA.bnVsbA.", "W10.W10.", "MQ.MQ.", "IiI.IiI.", "e30", "e30.", ".e30.",
    "..e30",
    "eyJhbGciOiJSUzI1NiJ9", "eyJhbGciOiJSUzI1NiJ9..", "eyJhbGciOiJSUzI1NiJ9.e30.", "eyJhbGciOiJSUzI1NiJ9.W10.AA",
    "eyJhbGciOiJSUzI1NiJ9.bnVsbA.AA", "eyJhbGciOiJSUzI1NiJ9.MQ.AA", "eyJhbGciOiJSUzI1NiJ9.IngI.AA", "eyJ.eyJ.eyJ",
    "%65%79.e30.e30", "eyJhbGciOiJSUzI1NiJ9\n.e30.AA", "<script>.e30.AA", "';--.e30.AA", "a" * 100,
    "." * 100, "a." * 100,
    "-----BEGIN PUBLIC KEY-----", "$2b$12$abc", "AAAA.AAAA.AAAA", "____.____.____", "----.----.----", "+/+/.+/+/.+/+/",
    "eyJhbGciOiJSUzI1NiIsImFsZyI6Im5vbmUifQ.e30.", "7b7d.7b7d.", "e30=.e30=.", "e 30.e30.AA", "e30,e30,AA",
    "e30;e30;AA",
    "0.0.0", "true.true.true", "NaN.NaN.NaN", "../../etc/passwd", "file:///etc/passwd", "http://127.0.0.1/",
    "\ud83d\ude00",
    "\N{GRINNING FACE}.e30.AA", "\u202e.e30.AA", "\ufeffe30.e30.AA", "e30.\u0000.AA", "x" * MOST_BYTES,
    assembled([["deep"]] * 3, {}), assembled(b'{"alg":"RS256"', claims()), assembled(b"\xff\xfe", claims()),
    assembled({"alg": "RS256"}, b"\xff\xfe"), assembled({"alg": "RS256"}, b'{"iss":'),
    assembled({"alg": "RS256"}, [1, 2]), assembled(b"[" * 3000, claims()), assembled({"alg": "RS256"}, b"[" * 3000),
    assembled({"alg": "RS256"}, b"{\"a\":" * 3000),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MALFORMED)))
async def test_what_is_no_token_is_refused(number: int) -> None:
    await refusal(MALFORMED[number])


def test_the_corpus_is_large() -> None:
    assert len(MALFORMED) >= 60


@pytest.mark.parametrize("size", [MOST_BYTES + 1, 1_000_000, 20_000_000])
async def test_a_huge_token_costs_nothing(size: int) -> None:
    began = time.process_time()
    await refusal(token() + "A" * size)
    assert time.process_time() - began < 1.0


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
async def test_any_text_is_believed_or_refused(text: str) -> None:
    with pytest.raises(Unauthenticated):
        await ready().authenticate(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(claims())), json_values)
async def test_any_value_in_any_claim_is_believed_or_refused(name: str, value: Any) -> None:
    """Signed as it should be, so only the claims themselves are in question."""
    body = {**claims(), name: value}
    text = signed(body, "one", "RS256", {"kid": "one"})
    try:
        found = await ready().authenticate(text)
    except Unauthenticated:
        return
    assert found.tenant == body["tenant_id"]
    assert found.subject == body["sub"]


# --- settings -------------------------------------------------------------------------------------------------------

UNFIT_SETTINGS: dict[str, dict[str, Any]] = {
    "no issuer": {"issuer": ""},
    "no audience": {"audience": ()},
    "an empty audience": {"audience": ("",)},
    "an audience as text": {"audience": "holdfast"},
    "no algorithm": {"algorithms": ()},
    "none": {"algorithms": ("none",)},
    "a shared algorithm with public keys": {"algorithms": ("RS256", "HS256")},
    "a shared algorithm with a key in PEM": {"key": public_pem("one"), "algorithms": ("HS256",)},
    "a public algorithm with a secret": {"key": SECRET, "algorithms": ("RS256",)},
    "both kinds with a secret": {"key": SECRET, "algorithms": ("HS256", "RS256")},
    "a short secret": {"key": "too short", "algorithms": ("HS256",)},
    "a secret that is short for the algorithm": {"key": SECRET, "algorithms": ("HS512",)},
    "a short key in PEM": {"key": public_pem("short")},
    "keys in the clear": {"jwks_url": "http://issuer.example/keys"},
    "an address that is none": {"jwks_url": "issuer.example/keys"},
    "keys in a file": {"jwks_url": "file:///etc/keys"},
    "a long leeway": {"leeway": 3600.0},
    "a negative leeway": {"leeway": -1.0},
    "no name for the tenant": {"claims": Claims(tenant="")},
    "two sources of keys": {"jwks_url": "https://issuer.example/keys", "jwks": document(jwk("one"))},
    "no source of keys": {"jwks": None},
    "no keys": {"jwks": document()},
    "no list of keys": {"jwks": {"keys": "none"}},
    "keys of another kind": {"jwks": document(jwk("curve", "ES256"))},
    "a broken key in PEM": {"key": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"},
    "a key of another kind": {"key": public_pem("curve", "ES256")},
}


@pytest.mark.parametrize("what", UNFIT_SETTINGS)
def test_settings_that_could_not_protect_are_refused(what: str) -> None:
    given = {"issuer": ISSUER, "audience": (AUDIENCE,), **UNFIT_SETTINGS[what]}
    if not {"jwks", "jwks_url", "key"} & given.keys():
        given["jwks"] = document(jwk("one"))
    with pytest.raises(HoldfastError) as caught:
        JwtAuthenticator(JwtSettings(**given))
    assert caught.value.code == "SETTING_INVALID"
    assert SECRET not in str(caught.value)


def test_two_settings_for_one_issuer_are_refused() -> None:
    with pytest.raises(HoldfastError) as caught:
        JwtAuthenticator(settings(), settings())
    assert caught.value.code == "SETTING_INVALID"
