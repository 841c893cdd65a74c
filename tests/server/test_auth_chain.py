"""One proof per request, over a real server: which one is asked, and what the refused are told."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from auth_issuer import AUDIENCE, ISSUER, request, settings, token
from fastapi import FastAPI
from http_server import listening

from holdfast import Engine
from holdfast.errors import HoldfastError, Unauthenticated
from holdfast.server.access.identity import CurrentIdentity, Identity, current_identity
from holdfast.server.auth.capabilities import RoleMap
from holdfast.server.auth.chain import Chain, credentials, open_chain
from holdfast.server.auth.jwt import JwtAuthenticator
from holdfast.server.auth.keyring import Keyring
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.http.problems import tell_problems
from holdfast.store.pg.reconnecting import StandingSession

pytestmark = pytest.mark.anyio


def who_app(authenticator: Any) -> FastAPI:
    app = FastAPI()
    app.state.authenticator = authenticator
    tell_problems(app)

    @app.get("/who")
    async def who(identity: CurrentIdentity) -> dict[str, Any]:
        return {
            "tenant": identity.tenant,
            "subject": identity.subject,
            "capabilities": sorted(identity.capabilities),
            "scopes": sorted(identity.scopes),
            "method": identity.method,
        }

    return app


@contextlib.asynccontextmanager
async def asked(authenticator: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        listening(who_app(authenticator)) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as client,
    ):
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.fixture
async def key(engine: Engine) -> str:
    session = await StandingSession.open(engine.dsn)
    issued = await Keyring(session).create(
        "globex", "billing", "service:billing", scopes=("read",), roles=("approver",)
    )
    await session.close()
    return issued.text


async def test_every_proof_over_http(engine: Engine, key: str) -> None:
    chosen = AuthSettings(jwt=(settings(),), development=True, roles={"approver": ("orders:approve:*",)})
    async with (
        open_chain(chosen, engine.dsn, listen_host="127.0.0.1", org="shop") as chain,
        asked(chain) as client,
    ):
        by_token = (await client.get("/who", headers=bearer(token(capabilities=["own"])))).json()
        assert by_token == {
            "tenant": "acme", "subject": "alice", "capabilities": ["orders:approve:*", "own"], "scopes": [],
            "method": "jwt",
        }  # fmt: skip
        by_key = (await client.get("/who", headers=bearer(key))).json()
        assert by_key == {
            "tenant": "globex", "subject": "service:billing", "capabilities": ["orders:approve:*"], "scopes": ["read"],
            "method": "api_key",
        }  # fmt: skip
        assert (await client.get("/who", headers={"x-api-key": key})).json() == by_key
        developer = (await client.get("/who", headers={"x-holdfast-tenant": "acme"})).json()
        assert (developer["tenant"], developer["subject"], developer["method"]) == ("acme", "developer", "development")
        # Whoever shows a wrong proof is not believed without one; nor do headers add to a right one.
        believed = {"x-holdfast-tenant": "acme", "x-holdfast-subject": "boss"}
        assert (await client.get("/who", headers={**believed, **bearer(token(exp=1))})).status_code == 401
        assert (await client.get("/who", headers={**believed, **bearer(key)})).json() == by_key


async def test_refusals_are_problems_with_a_challenge(engine: Engine, key: str) -> None:
    async with (
        open_chain(AuthSettings(jwt=(settings(),)), engine.dsn, listen_host="0.0.0.0", org="shop") as chain,
        asked(chain) as client,
    ):
        wrong_key = key[:-1] + ("A" if key[-1] != "A" else "B")
        cases: dict[str, tuple[list[tuple[str, str]], str, str]] = {
            "nothing": ([], "CREDENTIALS_MISSING", ""),
            "headers of development": ([("x-holdfast-tenant", "acme")], "CREDENTIALS_MISSING", ""),
            "expired": ([("authorization", f"Bearer {token(exp=1)}")], "TOKEN_EXPIRED", "invalid_token"),
            "nonsense": ([("authorization", "Bearer nonsense")], "TOKEN_INVALID", "invalid_token"),
            "a wrong key": ([("authorization", f"Bearer {wrong_key}")], "API_KEY_INVALID", "invalid_token"),
            "a key that is none": ([("x-api-key", "nonsense")], "API_KEY_INVALID", "invalid_token"),
            "a token as key": ([("x-api-key", token())], "API_KEY_INVALID", "invalid_token"),
            "a password": ([("authorization", "Basic YTpi")], "CREDENTIALS_UNSUPPORTED", "invalid_token"),
            "an empty scheme": ([("authorization", "Bearer")], "CREDENTIALS_UNSUPPORTED", "invalid_token"),
            "two": (
                [("authorization", f"Bearer {key}"), ("x-api-key", key)],
                "CREDENTIALS_AMBIGUOUS",
                "invalid_request",
            ),
            "twice": ([("authorization", f"Bearer {key}")] * 2, "CREDENTIALS_AMBIGUOUS", "invalid_request"),
        }
        for what, (headers, code, error) in cases.items():
            answer = await client.get("/who", headers=headers)
            assert answer.status_code == 401, what
            assert answer.headers["content-type"] == "application/problem+json", what
            assert answer.json()["code"] == code, what
            challenge = answer.headers["www-authenticate"]
            assert challenge.startswith('Bearer realm="holdfast"'), what
            assert (f'error="{error}"' in challenge) if error else ("error" not in challenge), what
            for secret in (wrong_key, key, token(exp=1)):
                assert secret not in answer.text + challenge, what


async def test_what_is_switched_off_is_not_believed(engine: Engine, key: str) -> None:
    async with open_chain(AuthSettings(api_keys=False), engine.dsn, listen_host="127.0.0.1", org="shop") as chain:
        for text in (key, token()):
            with pytest.raises(Unauthenticated) as caught:
                await chain(request(("Authorization", f"Bearer {text}")))
            assert caught.value.code == "CREDENTIALS_UNSUPPORTED"


async def test_a_server_without_authenticators_believes_nobody() -> None:
    async with asked(None) as client:
        assert (await client.get("/who", headers=bearer(token()))).status_code == 401


async def test_the_development_identity_needs_loopback_before_anything_is_opened() -> None:
    with pytest.raises(HoldfastError) as caught:
        async with open_chain(AuthSettings(development=True), "no database", listen_host="0.0.0.0", org="shop"):
            pass
    assert caught.value.code == "DEVELOPMENT_EXPOSED"


async def test_somebody_is_asked_once_per_request() -> None:
    calls: list[str] = []

    async def authenticate(_: Any) -> Identity:
        calls.append("asked")
        return Identity(tenant="acme", subject="alice")

    sent = request()
    sent.scope["app"] = who_app(authenticate)
    assert await current_identity(sent) is await current_identity(sent)
    assert calls == ["asked"]


async def test_a_resolver_of_ones_own() -> None:
    chain = Chain(jwt=JwtAuthenticator(settings()), resolver=RoleMap({"approver": ["x:*"]}))
    found = await chain(request(("Authorization", f"bearer {token(capabilities=None)}")))
    assert found.capabilities == {"x:*"}


@pytest.mark.parametrize("written", ["Bearer abc", "bearer abc", "BEARER   abc", "Bearer abc "])
def test_how_credentials_may_be_written(written: str) -> None:
    assert credentials(request(("Authorization", written))) == "abc"


async def test_the_examples_of_the_page_run(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)
    page = Path(__file__).parents[2] / "docs" / "authentication.md"
    issuer, application = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(issuer, str(page), "exec"), {})
    # Annotations of a function made by exec are looked up in the module it says it is from.
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(application, str(page), "exec"), names)
    async with listening(names["app"]) as url, httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        assert (await client.get("/flows/health/live")).status_code == 200
        assert (await client.get("/flows/ui/workflows")).json()["code"] == "CREDENTIALS_MISSING"


# --- settings ---------------------------------------------------------------------------------------------------------


def test_an_environment_without_a_word() -> None:
    found = AuthSettings.from_environment({})
    assert (found.jwt, found.api_keys, found.development, found.roles) == ((), True, False, {})


def test_an_environment_that_says_everything(tmp_path: Path) -> None:
    roles = tmp_path / "roles.json"
    roles.write_text(json.dumps({"approver": ["orders:*"]}))
    found = AuthSettings.from_environment(
        {
            "HOLDFAST_JWT_ISSUER": ISSUER,
            "HOLDFAST_JWT_AUDIENCE": f"{AUDIENCE}, other",
            "HOLDFAST_JWT_JWKS_URL": "https://issuer.example/keys",
            "HOLDFAST_JWT_ALGORITHMS": "RS256 ES256",
            "HOLDFAST_JWT_LEEWAY": "5",
            "HOLDFAST_JWT_SCOPE_PREFIX": "holdfast:",
            "HOLDFAST_JWT_CLAIM_TENANT": "org",
            "HOLDFAST_JWT_CLAIM_SCOPES": "scope",
            "HOLDFAST_ACCEPT_API_KEYS": "no",
            "HOLDFAST_DEVELOPMENT_IDENTITY": "1",
            "HOLDFAST_ROLES": str(roles),
        }
    )
    [issuer] = found.jwt
    assert (issuer.issuer, issuer.audience, issuer.algorithms) == (ISSUER, (AUDIENCE, "other"), ("RS256", "ES256"))
    assert (issuer.leeway, issuer.scope_prefix, issuer.claims.tenant) == (5.0, "holdfast:", "org")
    assert (issuer.claims.scopes, issuer.claims.subject) == ("scope", "sub")
    assert (found.api_keys, found.development, found.roles) == (False, True, {"approver": ("orders:*",)})


@pytest.mark.parametrize(
    "environment",
    [
        {"HOLDFAST_JWT_ISSUER": ISSUER},
        {"HOLDFAST_JWT_AUDIENCE": AUDIENCE},
        {"HOLDFAST_JWT_ISUER": ISSUER},
        {"HOLDFAST_JWT_CLAIM_NAME": "x"},
        {"HOLDFAST_JWT_LEEWAY": "soon"},
        {"HOLDFAST_ACCEPT_API_KEYS": "maybe"},
        {"HOLDFAST_DEVELOPMENT_IDENTITY": "maybe"},
        {"HOLDFAST_ROLES": "/nonexistent/roles.json"},
    ],
    ids=str,
)
def test_an_environment_that_makes_no_sense(environment: dict[str, str]) -> None:
    with pytest.raises(HoldfastError) as caught:
        AuthSettings.from_environment(environment)
    assert caught.value.code == "SETTING_INVALID"


def test_secrets_stay_out_of_representations() -> None:
    secret = "a shared secret of at least thirty-two bytes"
    assert secret not in repr(settings(key=secret, algorithms=("HS256",)))
