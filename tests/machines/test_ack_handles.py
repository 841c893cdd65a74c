"""Handles of acknowledgements: they carry an address, and a mangled one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.ack_handles import LENGTH, AckAddress, decode_ack, encode_ack
from holdfast.errors import NotFound

ADDRESSES = st.builds(
    AckAddress,
    instance=st.binary(min_size=16, max_size=16),
    at=st.integers(-(2**63), 2**63 - 1),
    fact=st.binary(min_size=16, max_size=16),
)


@given(ADDRESSES)
def test_a_handle_leads_back_to_its_address(address: AckAddress) -> None:
    handle = encode_ack(address)
    assert len(handle) == LENGTH
    assert handle.replace("-", "").replace("_", "").isalnum()
    assert decode_ack(handle) == address


@given(ADDRESSES, st.integers(0, LENGTH - 1), st.characters())
def test_3_4_a_mangled_handle_is_refused(address: AckAddress, place: int, letter: str) -> None:
    handle = encode_ack(address)
    mangled = handle[:place] + letter + handle[place + 1 :]
    if mangled == handle:
        return
    with pytest.raises(NotFound) as refused:
        decode_ack(mangled)
    assert refused.value.code == "ACK_UNKNOWN"


@pytest.mark.parametrize("text", ["", "x", None, 5, b"x" * LENGTH, "A" * LENGTH, "A" * 60, "é" * LENGTH])
def test_3_4_what_is_no_handle_is_refused(text: object) -> None:
    with pytest.raises(NotFound, match="ACK_UNKNOWN"):
        decode_ack(text)
