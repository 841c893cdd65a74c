"""A corpus of addresses: every spelling of a place that is not public is refused, ordinary ones are read as written."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.effects.addresses import AllowList, Target, find_address, is_public, read_target, resolve
from holdfast.runtime.effects.delivery import EffectFailed

# Refused by their spelling or by their address, whatever a name server says.
REFUSED = [
    # loopback, in all its notations
    "https://127.0.0.1/", "https://127.0.0.1:8443/x", "https://127.255.255.254/", "https://127.1/", "https://127.0.1/",
    "https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://0x7f.1/", "https://017700000001/",
    "https://0177.0.0.1/", "https://0177.0.0.01/", "https://00000177.0.0.1/", "https://127.0.0.1./",
    "https://127.0.0.1../", "https://①②⑦.0.0.1/", "https://１２７.０.０.１/", "https://127。0。0。1/", "https://0/",
    "https://0.0.0.0/", "https://0x0/", "https://localhost/", "https://LOCALHOST/", "https://localhost./",
    "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    # IPv6 and what hides in it
    "https://[::1]/", "https://[::]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://[64:ff9b::127.0.0.1]/", "https://[64:ff9b::a00:1]/",
    "https://[64:ff9b:1::1]/", "https://[2002:7f00:1::]/", "https://[2002:a00:1::1]/", "https://[2001:0:1::1]/",
    "https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[fc00::1]/",
    "https://[fd00:ec2::254]/", "https://[ff02::1]/", "https://[2001:db8::1]/", "https://[3fff::1]/", "https://[100::1]/",
    "https://[2606:4700::5efe:10.0.0.1]/", "https://[5f00::1]/", "https://[::ffff:169.254.169.254]/", "https://[::1",
    "https://[127.0.0.1]/", "https://[localhost]/", "https://[v1.fe80::1]/",
    # private, link-local, carrier, documentation, multicast, reserved
    "https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/", "https://100.64.0.1/", "https://100.127.255.255/",
    "https://192.0.0.1/", "https://192.0.2.1/", "https://198.18.0.1/", "https://198.51.100.1/", "https://203.0.113.1/",
    "https://192.88.99.1/", "https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/",
    "https://168.63.129.16/", "https://2852039166/", "https://0xA9FEA9FE/", "https://0xa9.0xfe.0xa9.0xfe/",
    "https://0251.0376.0251.0376/", "https://169.254.43518/", "https://1.2.3.4.5/", "https://256.1.1.1/",
    "https://1.1.1.1.0x10/", "https://99999999999/",
    # users, and other ways to look like somebody else
    "https://example.org@127.0.0.1/", "https://example.org:80@10.0.0.1/", "https://user:secret@example.org/",
    "https://@example.org/", "https://example.org\\@127.0.0.1/", "https://127.0.0.1\\.example.org/",
    "https://example.org#@127.0.0.1/", "https://example.org/#fragment", "https://127.0.0.1%00.example.org/",
    "https://%31%32%37.0.0.1/", "https://127.0.0.1%2f@example.org/", "https://exa mple.org/", " https://example.org/",
    "https://example.org/\r\nhost: other", "https://example.org/\x00", "https://example\t.org/",
    "https://exam\u200dple.org/",
    "https:\\\\example.org/", "https://example.org/ä",
    # no https, no host, no port, no sense
    "http://example.org/", "ftp://example.org/", "file:///etc/passwd", "gopher://127.0.0.1:70/_x",
    "javascript:alert(1)",
    "data:text/plain,x", "unix:/var/run/docker.sock", "//example.org/", "example.org", "https://", "https:///path",
    "https://:443/", "https://example.org:0/", "https://example.org:65536/", "https://example.org:-1/",
    "https://example.org:x/", "https://example.org:/", "https://.example.org/", "https://exam..ple.org/",
    "https://-bad.example.org/", "https://" + "a" * 64 + ".example.org/", "https://" + "a." * 130 + "org/",
    "https://example.org/" + "x" * 2048, "",
]  # fmt: skip


def public(*addresses: str):  # type: ignore[no-untyped-def]
    async def answer(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return answer


def find(url: str, *, allow: tuple[str, ...] = (), resolver=resolve, attempt: int = 1) -> str:  # type: ignore[no-untyped-def]
    return asyncio.run(find_address(read_target(url), AllowList(allow), resolver, attempt))


def test_the_corpus_is_large_and_has_no_repetitions() -> None:
    assert len(REFUSED) == len(set(REFUSED)) >= 60


@pytest.mark.parametrize("url", REFUSED, ids=ascii)
def test_it_is_refused_for_good(url: str) -> None:
    """With the machine's own resolver; names of the corpus that are no addresses never get that far."""
    with pytest.raises(EffectFailed) as refusal:
        find(url)
    assert refusal.value.final
    assert refusal.value.code in ("EFFECT_TARGET_INVALID", "EFFECT_TARGET_FORBIDDEN")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::", "", "x"],
)
def test_a_name_is_refused_if_any_of_its_addresses_is_not_public(address: str) -> None:
    for found in ((address,), ("93.184.215.14", address), (address, "93.184.215.14")):
        with pytest.raises(EffectFailed) as refusal:
            find("https://example.org/", resolver=public(*found))
        assert refusal.value.code == "EFFECT_TARGET_FORBIDDEN"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.org", Target("https", "example.org", 443, "/")),
        ("https://Example.ORG:8443/A/b?c=d", Target("https", "example.org", 8443, "/A/b?c=d")),
        ("https://example.org./", Target("https", "example.org", 443, "/")),
        ("https://bücher.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
        ("https://BÜCHER.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
        ("https://under_score.example/", Target("https", "under_score.example", 443, "/")),
        ("https://93.184.215.14/", Target("https", "93.184.215.14", 443, "/")),
        ("https://[2606:4700::1111]:444/", Target("https", "2606:4700::1111", 444, "/")),
        ("http://example.org/", Target("http", "example.org", 80, "/")),
    ],
)
def test_an_ordinary_address_is_read_as_written(url: str, target: Target) -> None:
    assert read_target(url) == target


def test_the_request_goes_to_the_address_that_was_checked_under_its_own_name() -> None:
    target = read_target("https://example.org:8443/x?y")
    assert target.at("93.184.215.14") == "https://93.184.215.14:8443/x?y"
    assert target.at("2606:4700::1111") == "https://[2606:4700::1111]:8443/x?y"
    assert target.origin == "example.org:8443"
    assert read_target("https://example.org/").origin == "example.org"
    assert read_target("https://[2606:4700::1111]/").origin == "[2606:4700::1111]"


def test_attempts_take_turns_among_the_addresses_of_a_name() -> None:
    two = public("93.184.215.14", "1.1.1.1", "1.1.1.1")
    assert [find("https://example.org/", resolver=two, attempt=n) for n in (1, 2, 3)] == [
        "93.184.215.14", "1.1.1.1", "93.184.215.14",
    ]  # fmt: skip


def test_the_allow_list_names_hosts_or_hosts_with_a_port() -> None:
    assert find("http://127.0.0.1:8080/", allow=("127.0.0.1",)) == "127.0.0.1"
    assert find("http://127.0.0.1:8080/", allow=("127.0.0.1:8080",)) == "127.0.0.1"
    assert find("http://[::1]:8080/", allow=("[::1]:8080",)) == "::1"
    assert find("http://Intern.Example./", allow=("intern.example",), resolver=public("10.0.0.5")) == "10.0.0.5"
    for url, entry in (
        ("http://127.0.0.1:8081/", "127.0.0.1:8080"),
        ("http://127.0.0.2/", "127.0.0.1"),
        ("http://evil.intern.example/", "intern.example"),
        ("http://intern.example.evil/", "intern.example"),
    ):
        with pytest.raises(EffectFailed):
            find(url, allow=(entry,), resolver=public("10.0.0.5"))


def test_a_name_nobody_knows_is_worth_another_attempt() -> None:
    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError("no such name")

    for resolver in (unknown, public()):
        with pytest.raises(EffectFailed) as refusal:
            find("https://nowhere.example/", resolver=resolver)
        assert (refusal.value.code, refusal.value.final) == ("EFFECT_TARGET_UNRESOLVED", False)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::1.1.1.1", "::ffff:1.1.1.1"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)
