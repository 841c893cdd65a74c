"""The development identity: believed on the machine itself, refused wherever anybody else could be behind a request."""

from __future__ import annotations

import logging

import pytest
from auth_issuer import Clock, request

from holdfast.errors import HoldfastError, Unauthenticated
from holdfast.loopback import is_loopback
from holdfast.server.access.identity import Identity
from holdfast.server.auth.development import BETWEEN_WARNINGS, Development

pytestmark = pytest.mark.anyio

LOOPBACK = ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1")
ELSEWHERE = (
    "10.0.0.5", "192.168.1.7", "8.8.8.8", "::", "0.0.0.0", "::ffff:10.0.0.5", "2001:db8::1", "fe80::1",
    "testclient", "localhost.evil.example", "127.0.0.1.evil.example", "", "0177.0.0.1", "2130706433",
)  # fmt: skip
LOCAL_NAMES = ("localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080", "LOCALHOST:1")
FOREIGN_NAMES = (
    "flows.example", "evil.example:8080", "10.0.0.5", "localhost.evil.example", "", "[",
    "somebody@localhost", "evil.example@127.0.0.1:8080", "@localhost", "a:b@[::1]",
    "localhost#@evil.example", "localhost/@evil.example", "localhost?@evil.example", "localhost/", "localhost\\",
    "127.0.0.1@evil.example", "0.0.0.0:8080",
)  # fmt: skip


@pytest.mark.parametrize("host", [*LOOPBACK, "localhost", "LocalHost", "localhost.", "[::1]"])
def test_a_server_on_loopback_may_use_it(host: str) -> None:
    assert is_loopback(host)
    Development(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_server_that_others_reach_may_not(host: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        Development(host)
    assert caught.value.code == "DEVELOPMENT_EXPOSED"
    assert "127.0.0.1" in caught.value.hint


async def test_the_headers_say_who_it_is() -> None:
    found = await Development("localhost").authenticate(
        request(
            ("X-Holdfast-Tenant", "acme"),
            ("X-Holdfast-Subject", "alice"),
            ("X-Holdfast-Partition", "eu"),
            ("X-Holdfast-Roles", "approver, clerk"),
            ("X-Holdfast-Capabilities", "orders:approve:execute,orders:read"),
        )
    )
    assert found == Identity(
        tenant="acme",
        subject="alice",
        partition="eu",
        roles=("approver", "clerk"),
        capabilities=frozenset({"orders:approve:execute", "orders:read"}),
        method="development",
    )


@pytest.mark.parametrize(("name", "encoding"), [("Łukasz", "utf-8"), ("Jürgen", "utf-8"), ("Jürgen", "latin-1")])
async def test_names_are_read_as_they_were_written(name: str, encoding: str) -> None:
    """By a terminal or by a browser; either way the header arrives as if it were Latin-1."""
    sent = request(("X-Holdfast-Subject", name.encode(encoding).decode("latin-1")))
    assert (await Development("127.0.0.1").authenticate(sent)).subject == name


async def test_without_headers_it_is_a_developer_who_may_everything() -> None:
    found = await Development("127.0.0.1", tenant="shop").authenticate(request())
    assert (found.tenant, found.subject, found.capabilities) == ("shop", "developer", {"*"})


async def test_an_empty_header_means_nothing_at_all() -> None:
    found = await Development("127.0.0.1").authenticate(request(("X-Holdfast-Capabilities", "")))
    assert found.capabilities == frozenset()


async def reason(*headers: tuple[str, str], **where: str | None) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as caught:
        await Development("127.0.0.1").authenticate(request(*headers, **where))  # type: ignore[arg-type]
    assert caught.value.challenge == 'Bearer realm="holdfast"'
    return caught.value


@pytest.mark.parametrize("client", LOOPBACK)
async def test_requests_from_the_machine_itself(client: str) -> None:
    assert (await Development("127.0.0.1").authenticate(request(client=client))).subject == "developer"


@pytest.mark.parametrize("client", [*ELSEWHERE, None])
async def test_requests_from_elsewhere(client: str | None) -> None:
    refused = await reason(client=client)
    assert refused.code == "DEVELOPMENT_REFUSED"
    assert "does not come from this machine" in refused.message


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-User", "x-forwarded-anything", "X_Forwarded_For"],
)
@pytest.mark.parametrize("value", ["127.0.0.1", "for=127.0.0.1", "", "10.0.0.5"])
async def test_requests_through_a_proxy(header: str, value: str) -> None:
    assert "through a proxy" in (await reason((header, value))).message


@pytest.mark.parametrize("host", LOCAL_NAMES)
async def test_names_of_the_machine(host: str) -> None:
    assert (await Development("127.0.0.1").authenticate(request(host=host))).subject == "developer"


@pytest.mark.parametrize("host", FOREIGN_NAMES)
async def test_names_that_somebody_else_could_have_pointed_here(host: str) -> None:
    assert "another name than localhost" in (await reason(host=host)).message


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]"])
async def test_pages_of_the_machine(origin: str) -> None:
    sent = request(("Origin", origin), ("Sec-Fetch-Site", "same-site"))
    assert (await Development("127.0.0.1").authenticate(sent)).subject == "developer"


@pytest.mark.parametrize(
    "header",
    [
        ("Origin", "https://evil.example"), ("Origin", "null"), ("Origin", ""), ("Origin", "http://localhost.evil.example"),
        ("Origin", "http://somebody@localhost"),
        ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", ""),
    ],
)  # fmt: skip
async def test_pages_of_others_in_the_same_browser(header: tuple[str, str]) -> None:
    assert "page of another origin" in (await reason(header)).message


@pytest.mark.parametrize(
    "header",
    [
        ("X-Holdfast-Tenant", ""), ("X-Holdfast-Tenant", "_system"), ("X-Holdfast-Tenant", "a" * 201),
        ("X-Holdfast-Subject", ""), ("X-Holdfast-Subject", "system"), ("X-Holdfast-Subject", "a\x01b"),
        ("X-Holdfast-Partition", "p" * 201), ("X-Holdfast-Roles", "r" * 201), ("X-Holdfast-Capabilities", "c" * 201),
        ("X-Holdfast-Roles", " ".join(f"r{n}" for n in range(1001))),
    ],
    ids=lambda header: f"{header[0]}={header[1][:10]}",
)  # fmt: skip
async def test_names_that_nobody_can_have(header: tuple[str, str]) -> None:
    refused = await reason(header)
    assert refused.code == "DEVELOPMENT_INVALID"
    assert header[0] in refused.message


async def test_it_says_so_loudly(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    development = Development("127.0.0.1", clock=clock)
    with caplog.at_level(logging.WARNING, "holdfast.auth"):
        development.announce()
        assert "THE DEVELOPMENT IDENTITY IS ON" in caplog.text
        caplog.clear()
        for _ in range(10):
            await development.authenticate(request())
        assert caplog.text.count("is in use") == 1
        clock.now += BETWEEN_WARNINGS
        await development.authenticate(request())
        assert caplog.text.count("is in use") == 2
