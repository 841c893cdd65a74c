"""What somebody may do: words and wildcards by segments, roles that stand for them, Cedar policies that decide."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.server.access.identity import Identity
from holdfast.server.auth.capabilities import FromClaims, RoleMap, covers, granted, has_all, has_any
from holdfast.server.auth.cedar import CedarPolicies

pytestmark = pytest.mark.anyio


def person(*capabilities: str, tenant: str = "acme", subject: str = "alice", roles: tuple[str, ...] = ()) -> Identity:
    return Identity(tenant=tenant, subject=subject, roles=roles, capabilities=frozenset(capabilities))


COVERED = [
    ("orders:approve", "orders:approve", True), ("orders:approve", "orders:approve:execute", False),
    ("orders:approve:execute", "orders:approve", False), ("*", "orders", True), ("*", "orders:approve:execute", True),
    ("orders:*", "orders:approve", True), ("orders:*", "orders:approve:execute", True), ("orders:*", "orders", False),
    ("orders:*", "ordersx:approve", False), ("orders:*:execute", "orders:approve:execute", True),
    ("orders:*:execute", "orders:approve:other", False), ("orders:*:execute", "orders:execute", False),
    ("orders:*:execute", "orders:a:b:execute", False), ("*:approve", "orders:approve", True),
    ("*:approve", "a:b:approve", False), ("*:*", "orders", False), ("*:*", "orders:approve", True),
    ("*:*", "orders:approve:execute", True), ("ord*", "orders", False), ("ord*", "ord*", True),
    ("orders:app*", "orders:approve", False), ("Orders:*", "orders:approve", False), ("orders:*", "orders:", True),
    ("", "orders", False), ("orders:*", "orders:*", True), ("orders", "orders:*", False), (":", ":", True),
]  # fmt: skip


@pytest.mark.parametrize(("grant", "word", "covered"), COVERED)
def test_which_words_a_grant_covers(grant: str, word: str, covered: bool) -> None:
    assert covers(frozenset({grant}), word) is covered


segments = st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=4)
plain = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


@given(segments, plain)
def test_a_wildcard_is_all_it_could_stand_for(grant: list[str], word: list[str]) -> None:
    """Against the plainest reading of the rules."""

    def fits(pattern: list[str], rest: list[str]) -> bool:
        if pattern == ["*"]:
            return len(rest) >= 1
        if not pattern or not rest:
            return pattern == rest
        return pattern[0] in ("*", rest[0]) and fits(pattern[1:], rest[1:])

    assert covers(frozenset({":".join(grant)}), ":".join(word)) == fits(grant, word)


def test_a_definition_names_words_and_a_person_has_some() -> None:
    named = ("orders:approve:execute", "orders:read", "users:read", "orders:read")
    assert granted(person("orders:*"), named) == ("orders:approve:execute", "orders:read")
    assert granted(person(), named) == ()
    assert granted(person("*"), ()) == ()


def test_acting_needs_all_and_seeing_needs_one() -> None:
    assert has_all({"a", "b"}, ["a", "b"])
    assert not has_all({"a"}, ["a", "b"])
    assert has_all(set(), [])
    assert has_any({"a"}, ["a", "b"])
    assert not has_any({"c"}, ["a", "b"])
    assert has_any(set(), [])


async def test_claims_are_the_default() -> None:
    assert await FromClaims().resolve(person("a", "b")) == {"a", "b"}


async def test_roles_stand_for_capabilities() -> None:
    roles = RoleMap({"approver": ["orders:approve:*"], "clerk": ("orders:read",)})
    found = await roles.resolve(person("own", roles=("approver", "unknown")))
    assert found == {"own", "orders:approve:*"}


@pytest.mark.parametrize("wrong", ["orders:*", [""], [1], ["a\0"]])
def test_a_role_that_stands_for_nonsense(wrong: Any) -> None:
    with pytest.raises(HoldfastError) as caught:
        RoleMap({"approver": wrong})
    assert caught.value.code == "SETTING_INVALID"


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "capabilities.md"
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, str(page), "exec"), {})


# --- Cedar ------------------------------------------------------------------------------------------------------------

POLICIES = """
permit (principal in Role::"approver", action == Action::"use", resource == Capability::"orders:approve:execute");

permit (principal in Tenant::"acme", action == Action::"use", resource == Capability::"orders:read");

forbid (principal, action, resource) when { principal.subject == "mallory" };
"""
NAMES = ("orders:approve:execute", "orders:read", "orders:delete")
ANYTHING = "permit (principal, action, resource);"


async def test_policies_decide_which_capabilities_somebody_has() -> None:
    policies = CedarPolicies(POLICIES, capabilities=NAMES)
    approver = person("orders:delete", roles=("approver",))
    assert await policies.resolve(approver) == {"orders:approve:execute", "orders:read"}
    assert await policies.resolve(person("orders:delete")) == {"orders:read"}
    assert await policies.resolve(person(tenant="globex")) == frozenset()
    assert await policies.resolve(person(subject="mallory", roles=("approver",))) == frozenset()
    assert await CedarPolicies(POLICIES).resolve(person("own")) == {"own"}


async def test_people_of_two_tenants_are_two_people() -> None:
    policies = CedarPolicies('permit (principal == Person::"acme/alice", action, resource);', capabilities=["a"])
    assert await policies.resolve(person()) == {"a"}
    assert await policies.resolve(person(tenant="globex")) == frozenset()
    assert await policies.resolve(person(tenant="acme/alice", subject="x")) == frozenset()


async def test_a_policy_that_fails_forbids(caplog: pytest.LogCaptureFixture) -> None:
    broken = f"{ANYTHING} forbid (principal, action, resource) when {{ resource.missing == 1 }};"
    with caplog.at_level(logging.WARNING, "holdfast.auth"):
        assert await CedarPolicies(broken, capabilities=["a"]).resolve(person()) == frozenset()
    assert "A Cedar policy failed" in caplog.text


async def test_names_that_need_quotes() -> None:
    policies = CedarPolicies(ANYTHING, capabilities=['a"b'])
    assert await policies.resolve(person(subject='a"b\\c')) == {'a"b'}


async def test_roles_may_be_in_roles() -> None:
    nested = [
        {
            "uid": {"type": "Role", "id": "boss"},
            "attrs": {},
            "parents": [{"type": "Role", "id": "approver"}],
        }
    ]
    policies = CedarPolicies(POLICIES, entities=nested, capabilities=NAMES[:1])
    assert await policies.resolve(person(roles=("boss",))) == {"orders:approve:execute"}


@pytest.mark.parametrize("wrong", ["permit (", "nonsense"])
def test_policies_that_cannot_be_read(wrong: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        CedarPolicies(wrong)
    assert caught.value.code == "SETTING_INVALID"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(HoldfastError, match=r"holdfast\[cedar\]") as caught:
        CedarPolicies(POLICIES)
    assert caught.value.code == "EXTRA_MISSING"
