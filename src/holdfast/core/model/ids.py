"""Derived identity: the same visit has the same token, receipt and step id in every process and at any time."""

from __future__ import annotations

from hashlib import sha256

from holdfast.core.model.timestamps import UNIX_OFFSET_MS

FORWARD = "forward"
COMPENSATE = "compensate"
CONTROL = "control"


def token_id(path: str, hop: int) -> str:
    return f"{path}@{hop}"


def wait_id(token: str, run: int, purpose: str) -> str:
    """The id of a wait. A node that is run again gets another one, so a message of the earlier run is stale."""
    return f"{token}:{purpose}" if run == 0 else f"{token}#{run}:{purpose}"


def receipt_key(instance: bytes, node: bytes, token: str, entity_version: int, kind: str, run: int) -> bytes:
    """The key that makes one visit of one node unique (semantics: exactly-once)."""
    return sha256(b"%b|%b|%b|%d|%b|%d" % (instance, node, token.encode(), entity_version, kind.encode(), run)).digest()


def step_id(now: int, key: bytes, bucket: int) -> bytes:
    """The shape of a UUIDv7: time first, so that index pages fill in order; bucket last, so that it names its shard."""
    return b"%b%c%b%c%b%c" % (
        (now // 1000 + UNIX_OFFSET_MS).to_bytes(6, "big"),
        0x70 | key[0] & 0x0F,
        key[1:2],
        0x80 | key[2] & 0x3F,
        key[3:9],
        bucket,
    )


def derived_id(bucket: int, *parts: bytes) -> bytes:
    """An id that follows from others, for timers, children and signals that the engine makes itself."""
    digest = sha256(b"|".join(parts)).digest()
    version, variant = 0x80 | digest[6] & 0x0F, 0x80 | digest[8] & 0x3F
    return b"%b%c%b%c%b%c" % (digest[:6], version, digest[7:8], variant, digest[9:15], bucket)


def task_id(now: int, instance: bytes, token: str, run: int) -> bytes:
    return step_id(now, sha256(b"%b|%b|%d|task" % (instance, token.encode(), run)).digest(), instance[15])


def effect_key(instance: bytes, token: str, run: int) -> str:
    """The idempotency key of an effect for its receiver. It follows from the visit alone, not from the time."""
    return derived_id(instance[15], instance, token.encode(), b"%d" % run, b"effect").hex()


def effect_id(now: int, instance: bytes, token: str, run: int) -> bytes:
    """The id of an effect's row and of its dead letter. The newest come last, so lists of them are short walks."""
    return step_id(now, bytes.fromhex(effect_key(instance, token, run)), instance[15])


def letter_id(now: int, step: bytes) -> bytes:
    """The id of the only dead letter about this step row. The newest come last."""
    return step_id(now, sha256(b"%b|letter" % step).digest(), step[15])


def timer_id(instance: bytes, wait: str) -> bytes:
    return derived_id(instance[15], instance, wait.encode())


def bucket_of(org: str, key: str) -> int:
    return sha256(f"{org}\x1f{key}".encode()).digest()[0]


def fraction(seed: bytes, ordinal: int) -> float:
    """A number in [0, 1) that follows from an id: spreads retries without randomness."""
    return int.from_bytes(sha256(b"%b|%d" % (seed, ordinal)).digest()[:4], "big") / 2**32
