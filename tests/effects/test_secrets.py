"""A secret of the environment belongs to one organisation, unless it is shared by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.effects.delivery import EffectFailed
from holdfast.runtime.effects.secrets import Secrets, SecretSource, from_environment, variables_of

ORGS = st.text(st.sampled_from("ab_-.AB2dé"), min_size=1, max_size=8)
NAMES = st.from_regex(r"[abAB2d][abAB2d_-]{0,8}", fullmatch=True)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_ORG", raising=False)
    monkeypatch.delenv("HOLDFAST_SHARED_SECRETS", raising=False)


def refusal(org: str, name: str, source: SecretSource = from_environment) -> EffectFailed:
    with pytest.raises(EffectFailed) as refused:
        Secrets(source, org).require(name)
    assert refused.value.code == "EFFECT_SECRET_MISSING"
    return refused.value


def test_a_plain_variable_is_not_another_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_BILLING", "ours")
    assert Secrets(from_environment, "default").require("billing") == "ours"
    message = refusal("acme", "billing").message
    assert "HOLDFAST_SECRET_ACME__BILLING" in message
    assert "HOLDFAST_SHARED_SECRETS" in message
    assert "ours" not in message


def test_the_plain_ones_are_those_of_the_organisation_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_BILLING", "ours")
    monkeypatch.setenv("HOLDFAST_ORG", "acme")
    assert from_environment("acme", "billing") == "ours"
    assert from_environment("default", "billing") is None


def test_a_tenant_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_BILLING", "ours")
    monkeypatch.setenv("HOLDFAST_SECRET_ACME_2DNORTH__BILLING", "theirs")
    assert from_environment("acme-north", "billing") == "theirs"
    assert from_environment("acme_north", "billing") is None
    assert from_environment("default", "billing") == "ours"


def test_a_name_that_is_shared_is_everybodys_who_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_MAIL_KEY", "everybody's")
    monkeypatch.setenv("HOLDFAST_SECRET_BILLING", "ours")
    monkeypatch.setenv("HOLDFAST_SECRET_ACME__MAIL_KEY", "theirs")
    monkeypatch.setenv("HOLDFAST_SHARED_SECRETS", " mail-key ,")
    assert from_environment("beta", "mail-key") == "everybody's"
    assert from_environment("acme", "mail-key") == "theirs"
    assert from_environment("beta", "billing") is None


@pytest.mark.parametrize("name", ["acme__billing", "acme--billing", "acme_-billing"])
def test_no_plain_name_is_a_tenants_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_ACME__BILLING", "theirs")
    assert from_environment("default", name) is None
    assert "HOLDFAST_SECRET_DEFAULT__ACME__BILLING" in refusal("default", name).message


@given(ORGS, NAMES, ORGS, NAMES)
def test_two_organisations_never_read_the_same_variable(one: str, name: str, other: str, another: str) -> None:
    if one != other:
        assert not {*variables_of(one, name)} & {*variables_of(other, another)}


@given(NAMES, ORGS.filter(lambda org: org != "default"), NAMES)
def test_the_default_organisation_reads_no_tenants_variable(name: str, other: str, another: str) -> None:
    assert not {*variables_of("default", name)} & {*variables_of(other, another)}


def test_a_source_of_ones_own_is_named_in_the_refusal() -> None:
    message = refusal("acme", "billing", lambda _org, _name: None).message
    assert "EffectOptions(secrets=" in message
    assert "HOLDFAST_SECRET_" not in message
