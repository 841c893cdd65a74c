"""API keys on a real database: made, used, replaced, ended, and never anybody else's."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from auth_issuer import Clock
from watched import Watched

from holdfast import Engine
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused, Unauthenticated
from holdfast.server.access.scopes import Scope
from holdfast.server.auth.api_keys import ApiKeyAuthenticator
from holdfast.server.auth.keyring import NOTED, REMEMBERED, SCOPES, IssuedKey, Keyring
from holdfast.store.api_keys import NewKey, insert_api_key, rotate_api_key
from holdfast.store.pg.reconnecting import StandingSession
from holdfast.testing import advance
from running import Evidence

pytestmark = pytest.mark.anyio

Db = psycopg.Connection[Any]


@dataclasses.dataclass
class Place:
    """As far as the clock of the database is concerned."""

    dsn: str


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Watched]:
    session = await StandingSession.open(holdfast_dsn)
    yield Watched(session)
    await session.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keyring(session: Watched, clock: Clock) -> Keyring:
    return Keyring(session, clock=clock)  # type: ignore[arg-type]


async def new(keyring: Keyring, org: str = "acme", **options: Any) -> IssuedKey:
    return await keyring.create(org, "billing", "service:billing", **options)


async def works(keyring: Keyring, issued: IssuedKey) -> bool:
    return await keyring.recognise(issued.text) is not None


async def test_a_key_is_told_once_and_known_by_its_digest(keyring: Keyring, evidence: Evidence) -> None:
    issued = await new(keyring, roles=("clerk",), capabilities=("orders:*",), scopes=("read", "act"), by="ann")
    assert re.fullmatch(r"hf_[a-z0-9]{12}_[A-Za-z0-9]{43}", issued.text)
    assert await keyring.recognise(issued.text) == issued.key
    secret = issued.text.rpartition("_")[2]
    assert secret not in repr(issued)
    stored = evidence.ask("select k::text from holdfast.api_keys k")
    assert secret not in stored
    assert secret.encode().hex() not in stored
    key = issued.key
    assert (key.org, key.name, key.subject, key.roles, key.capabilities) == (
        "acme", "billing", "service:billing", ("clerk",), ("orders:*",),
    )  # fmt: skip
    assert (key.scopes, key.created_by, key.expires_at, key.last_used_at) == (("read", "act"), "ann", None, None)


async def test_a_request_with_a_key_comes_from_its_subject(keyring: Keyring) -> None:
    issued = await new(keyring, partition="eu", roles=("clerk",), capabilities=("orders:*",), scopes=("read",))
    found = await ApiKeyAuthenticator(keyring).authenticate(issued.text)
    assert (found.tenant, found.subject, found.partition, found.method) == ("acme", "service:billing", "eu", "api_key")
    assert (found.roles, found.capabilities, found.scopes) == (("clerk",), {"orders:*"}, {"read"})


async def test_wrong_keys_are_refused_all_alike(keyring: Keyring) -> None:
    good, revoked = await new(keyring), await new(keyring)
    await keyring.revoke("acme", revoked.key.prefix)
    prefix, secret = good.key.prefix, good.text.rpartition("_")[2]
    other = "A" if secret[-1] != "A" else "B"
    wrong = [
        f"hf_{prefix}_{secret[:-1]}{other}", f"hf_{prefix}_{'A' * 43}", f"hf_{'a' * 12}_{secret}", revoked.text,
        "hf_", "hf__", f"hf_{prefix}", f"hf_{prefix}_", f"hf_{prefix}_{secret}A", f"hf_{prefix}_{secret[:-1]}",
        f"hf_{prefix.upper()}_{secret}", f"HF_{prefix}_{secret}", f"hf_{prefix}_{secret}\n", f" {good.text}",
        f"hf_{prefix}_' or true --", f"hf_%_{secret}", f"hf_{prefix}_" + "\0" * 43, "hf_" + "a" * 1_000_000,
    ]  # fmt: skip
    told = set()
    for text in wrong:
        with pytest.raises(Unauthenticated) as caught:
            await ApiKeyAuthenticator(keyring).authenticate(text)
        told.add((str(caught.value), caught.value.challenge))
    assert len(told) == 1
    [(message, challenge)] = told
    assert prefix not in message
    assert challenge == 'Bearer realm="holdfast", error="invalid_token"'


async def test_nobody_learns_from_the_work_done_whether_a_key_exists(keyring: Keyring, session: Watched) -> None:
    good, revoked = await new(keyring), await new(keyring)
    await keyring.revoke("acme", revoked.key.prefix)
    assert await works(keyring, good)  # from now on it is remembered
    work = []
    for text in (f"hf_{good.key.prefix}_{'A' * 43}", f"hf_{'z' * 12}_{'A' * 43}", revoked.text):
        session.sent.clear()
        assert await keyring.recognise(text) is None
        work.append(list(session.sent))
    assert work == [["pin_transaction", "read_api_key"]] * 3


async def test_a_good_key_is_remembered_for_a_moment(keyring: Keyring, session: Watched, clock: Clock) -> None:
    issued = await new(keyring)
    session.sent.clear()
    for _ in range(10):
        assert await works(keyring, issued)
    assert session.sent.count("read_api_key") == 1
    clock.now += REMEMBERED
    assert await works(keyring, issued)
    assert session.sent.count("read_api_key") == 2


async def test_a_key_ends_at_once_where_it_is_revoked_and_a_moment_later_elsewhere(
    keyring: Keyring, holdfast_dsn: str, clock: Clock
) -> None:
    elsewhere = await StandingSession.open(holdfast_dsn)
    other = Keyring(elsewhere, clock=clock)
    issued = await new(keyring)
    assert await works(keyring, issued)
    assert await works(other, issued)
    await keyring.revoke("acme", issued.key.prefix, by="ann")
    assert not await works(keyring, issued)
    clock.now += REMEMBERED
    assert not await works(other, issued)
    await keyring.revoke("acme", issued.key.prefix, by="bob")  # again changes nothing
    [key] = await keyring.list("acme", ended=True)
    assert key.revoked_by == "ann"
    await elsewhere.close()


async def test_a_key_expires(keyring: Keyring, holdfast_dsn: str, clock: Clock) -> None:
    issued = await new(keyring, lifetime=3600)
    assert issued.key.expires_at is not None
    assert await works(keyring, issued)
    await advance(Place(holdfast_dsn), minutes=59)
    clock.now += REMEMBERED
    assert await works(keyring, issued)
    await advance(Place(holdfast_dsn), minutes=2)
    clock.now += REMEMBERED
    assert not await works(keyring, issued)
    assert await keyring.list("acme") == []
    assert [key.prefix for key in await keyring.list("acme", ended=True)] == [issued.key.prefix]


async def test_its_last_use_is_noted_once_a_minute(
    keyring: Keyring, holdfast_dsn: str, session: Watched, clock: Clock
) -> None:
    issued = await new(keyring)
    other = Keyring(session, clock=clock)  # type: ignore[arg-type]

    async def last_use() -> Any:
        [key] = await keyring.list("acme")
        return key.last_used_at

    assert await works(keyring, issued)
    first = await last_use()
    assert first is not None
    assert await works(other, issued)  # another process has not noted it yet, the database has
    assert await last_use() == first
    clock.now += REMEMBERED
    assert await works(keyring, issued)
    assert session.sent.count("note_api_key_use") == 2
    await advance(Place(holdfast_dsn), seconds=61)
    clock.now += NOTED
    assert await works(keyring, issued)
    assert await last_use() > first


async def test_a_replaced_key_works_until_the_overlap_is_over(
    keyring: Keyring, holdfast_dsn: str, clock: Clock
) -> None:
    former = await new(keyring, roles=("clerk",), capabilities=("orders:*",), scopes=("read",), partition="eu")
    latter = await keyring.rotate("acme", former.key.prefix, overlap=600, by="ann")
    same = ("org", "name", "subject", "partition", "roles", "capabilities", "scopes")
    assert [getattr(latter.key, name) for name in same] == [getattr(former.key, name) for name in same]
    assert latter.text != former.text
    assert (latter.key.created_by, latter.key.expires_at) == ("ann", None)
    assert await works(keyring, former)
    assert await works(keyring, latter)
    await advance(Place(holdfast_dsn), minutes=11)
    clock.now += REMEMBERED
    assert not await works(keyring, former)
    assert await works(keyring, latter)


async def test_a_replacement_lasts_as_long_as_the_first_was_meant_to(keyring: Keyring, holdfast_dsn: str) -> None:
    former = await new(keyring, lifetime=30 * 86_400)
    await advance(Place(holdfast_dsn), days=20)
    latter = await keyring.rotate("acme", former.key.prefix, overlap=0)
    assert not await works(keyring, former)
    assert latter.key.expires_at is not None
    assert (latter.key.expires_at - latter.key.created_at).days == 30
    chosen = await keyring.rotate("acme", latter.key.prefix, lifetime=3600)
    assert chosen.key.expires_at is not None
    assert (chosen.key.expires_at - chosen.key.created_at).total_seconds() == 3600


async def test_an_overlap_never_makes_a_key_last_longer(keyring: Keyring) -> None:
    former = await new(keyring, lifetime=60)
    await keyring.rotate("acme", former.key.prefix, overlap=86_400)
    assert [key.expires_at for key in await keyring.list("acme") if key.prefix == former.key.prefix] == [
        former.key.expires_at
    ]


async def test_of_two_who_replace_a_key_at_once_one_wins(keyring: Keyring, holdfast_dsn: str) -> None:
    elsewhere = await StandingSession.open(holdfast_dsn)
    former = await new(keyring)
    both = await asyncio.gather(
        *(ring.rotate("acme", former.key.prefix) for ring in (keyring, Keyring(elsewhere))), return_exceptions=True
    )
    [won] = [one for one in both if isinstance(one, IssuedKey)]
    [lost] = [one for one in both if isinstance(one, Conflict)]
    assert lost.code == "API_KEY_REPLACED"
    assert {key.prefix for key in await keyring.list("acme")} == {former.key.prefix, won.key.prefix}
    await elsewhere.close()


async def test_a_write_that_is_sent_twice_happens_once(session: Any) -> None:
    """As it is when the connection is lost before the answer comes."""
    wanted = NewKey("acme", "billing", "service:billing", scopes=("read",))
    first, again = [await insert_api_key(session, "a" * 12, bytes(32), wanted) for _ in range(2)]
    assert first == again
    options: dict[str, Any] = {"prefix": "b" * 12, "digest": bytes(32), "overlap": 0, "lifetime": None, "by": "ann"}
    first, again = [await rotate_api_key(session, "acme", "a" * 12, **options) for _ in range(2)]
    assert first == again
    assert first is not None


async def test_what_cannot_be_replaced(keyring: Keyring) -> None:
    former, revoked = await new(keyring), await new(keyring)
    latter = await keyring.rotate("acme", former.key.prefix)
    with pytest.raises(Conflict, match=latter.key.prefix) as again:
        await keyring.rotate("acme", former.key.prefix)
    assert again.value.code == "API_KEY_REPLACED"
    await keyring.revoke("acme", revoked.key.prefix)
    with pytest.raises(Conflict) as ended:
        await keyring.rotate("acme", revoked.key.prefix)
    assert ended.value.code == "API_KEY_ENDED"
    for unknown in ("a" * 12, "", "hf_", former.text, "'; drop table holdfast.api_keys; --"):
        with pytest.raises(NotFound) as caught:
            await keyring.rotate("acme", unknown)
        assert caught.value.code == "API_KEY_UNKNOWN"
        assert former.text not in str(caught.value)
    assert len(await keyring.list("acme")) == 2


async def test_keys_of_another_organisation_are_not_there(keyring: Keyring) -> None:
    ours, theirs = await new(keyring, "acme"), await new(keyring, "globex")
    assert [key.prefix for key in await keyring.list("acme")] == [ours.key.prefix]
    for act in (keyring.rotate, keyring.revoke):
        with pytest.raises(NotFound) as caught:
            await act("acme", theirs.key.prefix)
        assert caught.value.code == "API_KEY_UNKNOWN"
    assert await works(keyring, theirs)
    # Nor does a page begin where somebody else's key stands.
    assert [key.prefix for key in await keyring.list("acme", after=theirs.key.prefix)] == [ours.key.prefix]


async def test_a_list_comes_in_pages_newest_first(keyring: Keyring) -> None:
    made = [(await new(keyring)).key.prefix for _ in range(5)]
    first = await keyring.list("acme", limit=2)
    second = await keyring.list("acme", limit=2, after=first[-1].prefix)
    third = await keyring.list("acme", limit=2, after=second[-1].prefix)
    assert [key.prefix for page in (first, second, third) for key in page] == made[::-1]
    for limit in (0, 1001):
        with pytest.raises(Refused):
            await keyring.list("acme", limit=limit)


@pytest.mark.parametrize(
    "wrong",
    [
        {"org": ""}, {"org": "_system"}, {"org": "a" * 201}, {"org": "a\0"}, {"name": ""}, {"name": "n" * 201},
        {"subject": ""}, {"subject": "system"}, {"subject": "s" * 501}, {"subject": "a\nb"}, {"partition": "p" * 201},
        {"roles": ("",)}, {"capabilities": ("a\0",)}, {"scopes": ()}, {"scopes": ("everything",)}, {"lifetime": 0},
        {"lifetime": -5}, {"lifetime": 1e12}, {"lifetime": float("nan")},
    ],
    ids=str,
)  # fmt: skip
async def test_what_a_key_cannot_be(keyring: Keyring, wrong: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError) as caught:
        await keyring.create(**{"org": "acme", "name": "n", "subject": "s", **wrong})
    assert caught.value.http_status == 422
    assert await keyring.list("acme", ended=True) == []


async def test_the_scopes_are_those_of_the_api() -> None:
    assert set(SCOPES) == {scope.value for scope in Scope}


# --- the second wall --------------------------------------------------------------------------------------------------


@pytest.fixture
async def db(keyring: Keyring, holdfast_dsn: str) -> AsyncIterator[Db]:
    for org in ("acme", "globex"):
        await new(keyring, org)
    with psycopg.connect(holdfast_dsn) as connection:
        yield connection


def denied(db: Db, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
        db.execute(statement)


async def test_a_tenant_sees_its_own_keys_without_their_digests(db: Db) -> None:
    db.execute("set local role holdfast_tenant")
    assert db.execute("select org_id from holdfast.api_keys").fetchall() == []
    db.execute("set local holdfast.org = 'acme'")
    assert db.execute("select org_id from holdfast.api_keys").fetchall() == [("acme",)]
    denied(db, "select digest from holdfast.api_keys")
    denied(db, "select * from holdfast.api_keys")
    denied(db, "update holdfast.api_keys set revoked_at = now()")
    denied(db, "delete from holdfast.api_keys")
    denied(db, "insert into holdfast.api_keys default values")


async def test_nobody_rewrites_or_removes_a_key(db: Db) -> None:
    db.execute("set local role holdfast_worker")
    for column in ("org_id", "subject", "digest", "capabilities", "scopes", "prefix"):
        denied(db, f"update holdfast.api_keys set {column} = {column}")
    denied(db, "delete from holdfast.api_keys")


async def test_keys_are_made_beside_a_running_engine(engine: Engine) -> None:
    session = await StandingSession.open(engine.dsn)
    try:
        assert await works(Keyring(session), await new(Keyring(session)))
    finally:
        await session.close()
