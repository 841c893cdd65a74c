"""Signatures: the published example, rotation, and everything a receiver must refuse."""

from __future__ import annotations

import pytest
from effect_flows import OLD_SECRET, SECRET
from hypothesis import given
from hypothesis import strategies as st

from holdfast import webhooks
from holdfast.errors import Forbidden, HoldfastError

ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
STAMP = 1614265330
BODY = b'{"test": 2432232314}'
KNOWN = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers(signature: str, id: str = ID, stamp: str = str(STAMP)) -> dict[str, str]:
    return {"Webhook-Id": id, "WEBHOOK-TIMESTAMP": stamp, "webhook-signature": signature}


def test_it_is_the_signature_of_the_specification() -> None:
    assert webhooks.sign(ID, STAMP, BODY, [SECRET]) == KNOWN
    assert webhooks.sign(ID, STAMP, BODY, [SECRET.removeprefix("whsec_")]) == KNOWN


def test_a_genuine_request_answers_its_id_within_five_minutes() -> None:
    for now in (STAMP - 300, STAMP, STAMP + 300):
        assert webhooks.verify(headers(KNOWN), BODY, SECRET, now=now) == ID


@pytest.mark.parametrize("now", [STAMP - 301, STAMP + 301, 0, 2**40])
def test_an_old_request_is_refused(now: float) -> None:
    with pytest.raises(Forbidden) as refusal:
        webhooks.verify(headers(KNOWN), BODY, SECRET, now=now)
    assert refusal.value.code == "WEBHOOK_TOO_OLD"


@pytest.mark.parametrize("stamp", ["", "x", "1614265330.0", "-1614265330", " 1614265330x", "٣", "9" * 400])
def test_a_time_that_is_none_is_refused(stamp: str) -> None:
    with pytest.raises(Forbidden):
        webhooks.verify(headers(KNOWN, stamp=stamp), BODY, SECRET, now=STAMP)


def test_either_secret_is_good_while_there_are_two() -> None:
    both = webhooks.sign(ID, STAMP, BODY, [SECRET, OLD_SECRET])
    assert len(both.split()) == 2
    assert webhooks.verify(headers(both), BODY, SECRET, now=STAMP) == ID
    assert webhooks.verify(headers(both), BODY, OLD_SECRET, now=STAMP) == ID
    old = webhooks.sign(ID, STAMP, BODY, [OLD_SECRET])
    assert webhooks.verify(headers(old), BODY, [SECRET, OLD_SECRET], now=STAMP) == ID


@pytest.mark.parametrize(
    "signature",
    [
        "v1", "v1,", ",", "v1,AAAA", KNOWN[:-1], KNOWN.replace("v1,", "v2,"), KNOWN.replace("v1,", ""),
        KNOWN.lower(), "v1,\u00e9", "v1a," + KNOWN[3:], " ".join(["v1,AAAA"] * 5000 + [KNOWN]),
    ],
)  # fmt: skip
def test_a_wrong_signature_is_refused(signature: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        webhooks.verify(headers(signature), BODY, SECRET, now=STAMP)
    assert refusal.value.code == "WEBHOOK_SIGNATURE_INVALID"


def test_the_signature_covers_id_time_and_body() -> None:
    for changed in (
        (headers(KNOWN, id="msg_other"), BODY),
        (headers(KNOWN, stamp=str(STAMP + 1)), BODY),
        (headers(KNOWN), BODY + b" "),
    ):
        with pytest.raises(Forbidden):
            webhooks.verify(*changed, SECRET, now=STAMP)


@pytest.mark.parametrize("missing", ["Webhook-Id", "WEBHOOK-TIMESTAMP", "webhook-signature"])
def test_an_unsigned_request_is_refused(missing: str) -> None:
    incomplete = {name: value for name, value in headers(KNOWN).items() if name != missing}
    with pytest.raises(Forbidden) as refusal:
        webhooks.verify(incomplete, BODY, SECRET, now=STAMP)
    assert refusal.value.code == "WEBHOOK_UNSIGNED"


@pytest.mark.parametrize("secret", ["", "whsec_", "short", "whsec_!!!", "c2hvcnQ="])
def test_a_weak_secret_is_refused_on_both_sides(secret: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        webhooks.sign(ID, STAMP, BODY, [secret])
    assert refusal.value.code == "WEBHOOK_SECRET_INVALID"
    with pytest.raises(HoldfastError):
        webhooks.verify(headers(KNOWN), BODY, secret, now=STAMP)


def test_no_secret_at_all_accepts_nothing() -> None:
    with pytest.raises(Forbidden):
        webhooks.verify(headers(KNOWN), BODY, [], now=STAMP)


@given(st.text(min_size=1), st.integers(0, 10**12), st.binary())
def test_what_was_signed_verifies(id: str, stamp: int, body: bytes) -> None:
    try:
        id.encode()
    except UnicodeEncodeError:
        return
    signed = webhooks.sign(id, stamp, body, [SECRET])
    assert webhooks.verify(headers(signed, id, str(stamp)), body, SECRET, now=stamp) == id
