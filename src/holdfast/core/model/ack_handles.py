"""The handle of an acknowledgement: an opaque text that carries the address of its fact.

A consumer gets it with a fact and gives it back with its answer. It is the same for every consumer and every
redelivery, fits into a URL, and ends with a checksum, which a mistyped one does not fit.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from holdfast.errors import NotFound

LENGTH: Final = 59  # characters of every handle
_PACKED: Final = Struct("!16sq16s")
_SUM: Final = Struct("!I")


class AckAddress(msgspec.Struct, frozen=True, gc=False):
    """The address of a fact: its instance, the moment of its commit, its id."""

    instance: bytes
    at: int
    fact: bytes


def encode_ack(address: AckAddress) -> str:
    packed = _PACKED.pack(address.instance, address.at, address.fact)
    return urlsafe_b64encode(packed + _SUM.pack(crc32(packed))).rstrip(b"=").decode()


def decode_ack(text: object) -> AckAddress:
    """The address in a handle; one that this engine cannot have made is refused."""
    if not isinstance(text, str) or len(text) != LENGTH or not text.isascii():
        raise unknown_ack(text)
    try:
        data = urlsafe_b64decode(text + "=")
    except ValueError:
        raise unknown_ack(text) from None
    packed, sum = data[: _PACKED.size], data[_PACKED.size :]
    if len(data) != _PACKED.size + _SUM.size or sum != _SUM.pack(crc32(packed)):
        raise unknown_ack(text)
    address = AckAddress(*_PACKED.unpack(packed))
    if encode_ack(address) != text:  # letters that no handle has were skipped
        raise unknown_ack(text)
    return address


def unknown_ack(text: object) -> NotFound:
    return NotFound(
        f"There is no acknowledgement {ascii(text)[:80]}.",
        code="ACK_UNKNOWN",
        hint="Give back the `ack` of an event exactly as it was handed out, to the consumer that got it.",
    )
