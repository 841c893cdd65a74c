"""`holdfast keys`: made, listed, replaced and ended on the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from cli_process import command
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.errors import HoldfastError
from holdfast.server.auth.keyring import Keyring
from holdfast.store.api_keys import ApiKey
from holdfast.store.pg.reconnecting import StandingSession


@pytest.fixture(autouse=True)
def database(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)


def said(*arguments: str) -> str:
    """What the command prints; in this process, because a new one takes its time."""
    return CliRunner().invoke(app, ["keys", *arguments], catch_exceptions=False).stdout


def answer(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))


def recognised(dsn: str, text: str) -> ApiKey | None:
    async def recognise() -> ApiKey | None:
        session = await StandingSession.open(dsn)
        try:
            return await Keyring(session).recognise(text)
        finally:
            await session.close()

    return asyncio.run(recognise())


def test_the_life_of_a_key(holdfast_dsn: str) -> None:
    options = ["--tenant", "acme", "--subject", "service:billing", "--scope", "read", "--scope", "act", "--by", "ann"]
    rights = ["--role", "clerk", "--capability", "orders:*", "--partition", "eu", "--expires", "90d"]
    made = answer("create", "billing", *options, *rights)
    found = recognised(holdfast_dsn, made["key"])
    assert found is not None
    assert (found.org, found.subject, found.scopes, found.roles) == (
        "acme", "service:billing", ("read", "act"), ("clerk",),
    )  # fmt: skip
    assert found.expires_at is not None
    assert (found.expires_at - found.created_at).days == 90

    [listed] = answer("list", "--tenant", "acme")
    assert listed["prefix"] == made["prefix"]
    assert listed["last_used_at"] is not None
    assert "key" not in listed
    assert made["key"].rpartition("_")[2] not in json.dumps(listed)
    assert answer("list") == []

    latter = answer("rotate", made["prefix"], "--tenant", "acme", "--overlap", "0")
    assert recognised(holdfast_dsn, made["key"]) is None
    assert recognised(holdfast_dsn, latter["key"]) is not None
    assert answer("revoke", latter["prefix"], "--tenant", "acme") == {"revoked": latter["prefix"]}
    assert recognised(holdfast_dsn, latter["key"]) is None
    assert answer("list", "--tenant", "acme") == []
    assert [key["prefix"] for key in answer("list", "--tenant", "acme", "--all")] == [
        latter["prefix"], made["prefix"],
    ]  # fmt: skip


def test_what_people_read() -> None:
    made = said("create", "billing")
    assert "hf_" in made
    assert "cannot be shown again" in made
    head, row = said("list").splitlines()
    assert head.split()[:3] == ["PREFIX", "NAME", "SUBJECT"]
    assert row.split()[1:5] == ["billing", "key:billing", "read,start,act", "never"]
    prefix = row.split()[0]
    assert prefix in said("revoke", prefix)
    assert "There are no keys." in said("list")
    assert "revoked" in said("list", "--all")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("revoke", "a" * 12), "API_KEY_UNKNOWN"),
        (("rotate", "nonsense"), "API_KEY_UNKNOWN"),
        (("create", "x", "--scope", "everything"), "SCOPE_UNKNOWN"),
        (("create", "x", "--expires", "soon"), "LIFETIME_INVALID"),
        (("create", "x", "--tenant", "_system"), "NAME_INVALID"),
    ],
)
def test_mistakes_have_codes(arguments: tuple[str, ...], code: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        said(*arguments)
    assert caught.value.code == code


def test_keys_are_managed_without_the_packages_of_the_server() -> None:
    script = "import sys, holdfast.cli.commands.keys; print(sorted({'fastapi', 'starlette', 'jwt'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_command_itself(holdfast_dsn: str) -> None:
    done = command("keys", "revoke", "a" * 12, HOLDFAST_DSN=holdfast_dsn)
    assert done.returncode == 4
    assert "[API_KEY_UNKNOWN]" in done.stderr
