"""API keys for programs: issue, list, rotate, revoke, recognise.

A key is `hf_<prefix>_<secret>`. The prefix is public and finds the row; of the secret, 256 random bits, only the
SHA-256 is stored: with that much entropy guessing is hopeless, so a slow hash would protect nothing and cost every
request.

No answer tells a key that exists from one that does not: both are one look-up and one comparison in constant time. Keys
that were found good are remembered for a second under the digest of the whole key, so only their owner is ever faster.
"""

from __future__ import annotations

import re
import secrets
import string
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from holdfast.core.model.timestamps import seconds
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.server.auth import naming
from holdfast.store.api_keys import (
    ApiKey,
    NewKey,
    StoredKey,
    find_api_key,
    insert_api_key,
    list_api_keys,
    note_api_key_use,
    revoke_api_key,
    rotate_api_key,
)
from holdfast.store.pg.session import Session

MARK: Final = "hf_"
SCOPES: Final = ("read", "start", "act", "publish", "consume", "operate")
USUAL_SCOPES: Final = ("read", "start", "act")
OVERLAP: Final = 24 * 3600.0  # seconds for which a replaced key still works
LONGEST: Final = 100 * 365.25 * 86_400
MOST_LISTED: Final = 1000
REMEMBERED: Final = 1.0  # seconds; a revoked key may work that much longer in other processes
NOTED: Final = 60.0  # seconds between two notes of a key's use
_MOST_REMEMBERED: Final = 10_000
_PREFIX_ALPHABET: Final = string.ascii_lowercase + string.digits
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits
_PREFIX_LENGTH, _SECRET_LENGTH = 12, 43  # 62 and 256 bits
_PREFIX: Final = re.compile(rf"[a-z0-9]{{{_PREFIX_LENGTH}}}")
_FORM: Final = re.compile(rf"{MARK}({_PREFIX.pattern})_([A-Za-z0-9]{{{_SECRET_LENGTH}}})")
_NO_DIGEST: Final = bytes(32)


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key and its text, which is shown this once and never again."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:  # logs and tracebacks show representations
        return f"IssuedKey({self.key.prefix})"


class _Drawn(msgspec.Struct, frozen=True):
    prefix: str
    secret: str

    @property
    def digest(self) -> bytes:
        return sha256(self.secret.encode()).digest()

    @property
    def text(self) -> str:
        return f"{MARK}{self.prefix}_{self.secret}"


class Keyring:
    def __init__(
        self, session: Session, *, remembered: float = REMEMBERED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._remembered = remembered
        self._clock = clock
        self._good: dict[bytes, tuple[float, ApiKey]] = {}
        self._noted: dict[str, float] = {}

    # --- for their owners --------------------------------------------------------------------------------------------

    async def create(
        self,
        org: str,
        name: str,
        subject: str,
        *,
        partition: str = "",
        roles: tuple[str, ...] = (),
        capabilities: tuple[str, ...] = (),
        scopes: tuple[str, ...] = USUAL_SCOPES,
        lifetime: float | None = None,
        by: str | None = None,
    ) -> IssuedKey:
        new = NewKey(
            org=org,
            name=name,
            subject=subject,
            partition=partition,
            roles=roles,
            capabilities=capabilities,
            scopes=scopes,
            created_by=by,
            lifetime=_microseconds(lifetime, 1),
        )
        _check(new)
        while True:  # until a free prefix is drawn: the first
            drawn = _draw()
            stored = await insert_api_key(self._session, drawn.prefix, drawn.digest, new)
            if stored is not None and stored.digest == drawn.digest:
                return IssuedKey(stored.key, drawn.text)

    async def list(self, org: str, *, ended: bool = False, after: str | None = None, limit: int = 100) -> list[ApiKey]:
        """Newest first; with `ended` also those that no longer work."""
        if not 1 <= limit <= MOST_LISTED:
            raise Refused(f"A page holds 1 to {MOST_LISTED} keys.", code="LIMIT_INVALID")
        if after is not None:
            _check_prefix(after)
        return await list_api_keys(self._session, org, after=after, ended=ended, limit=limit)

    async def rotate(
        self,
        org: str,
        prefix: str,
        *,
        overlap: float = OVERLAP,
        lifetime: float | None = None,
        by: str | None = None,
    ) -> IssuedKey:
        """A second key with the same rights; the first one works for `overlap` more seconds."""
        _check_prefix(prefix)
        drawn = _draw()
        stored = await rotate_api_key(
            self._session,
            org,
            prefix,
            prefix=drawn.prefix,
            digest=drawn.digest,
            overlap=_microseconds(overlap, 0) or 0,
            lifetime=_microseconds(lifetime, 1),
            by=by,
        )
        self._forget(prefix)
        if stored is None or stored.digest != drawn.digest:
            raise await self._why_not(org, prefix)
        return IssuedKey(stored.key, drawn.text)

    async def revoke(self, org: str, prefix: str, *, by: str | None = None) -> None:
        _check_prefix(prefix)
        if not await revoke_api_key(self._session, org, prefix, by):
            raise _unknown(prefix)
        self._forget(prefix)

    async def _why_not(self, org: str, prefix: str) -> Exception:
        found = await find_api_key(self._session, prefix)
        if found is None or found.key.org != org:
            return _unknown(prefix)
        if not found.is_good:
            return Conflict(
                f"The key {prefix} is revoked or has expired.", code="API_KEY_ENDED", hint="Create a new one."
            )
        return Conflict(
            f"The key {prefix} has been replaced by {found.key.successor}.",
            code="API_KEY_REPLACED",
            hint="Rotate that one, or create a new key.",
        )

    # --- recognition -------------------------------------------------------------------------------------------------

    def needs_lookup(self, text: str) -> bool:
        """Check whether this key has to be looked up in the database.

        A key that was found good is looked up once a second at most, so it does not count.
        """
        return _FORM.fullmatch(text) is not None and sha256(text.encode()).digest() not in self._good

    async def recognise(self, text: str) -> ApiKey | None:
        """Find the key; None when it is none, unknown, wrong, revoked or expired, without a difference."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        whole = sha256(text.encode()).digest()
        known = self._good.get(whole)
        if known is not None and self._clock() - known[0] < self._remembered:
            return known[1]
        prefix, secret = form.groups()
        stored = await find_api_key(self._session, prefix)
        if not _is_right(stored, secret) or stored is None:
            self._good.pop(whole, None)
            return None
        self._remember(whole, stored.key)
        await self._note_use(prefix)
        return stored.key

    def _remember(self, whole: bytes, key: ApiKey) -> None:
        if len(self._good) >= _MOST_REMEMBERED:
            self._good.clear()
        self._good[whole] = (self._clock(), key)

    def _forget(self, prefix: str) -> None:
        self._good = {whole: known for whole, known in self._good.items() if known[1].prefix != prefix}

    async def _note_use(self, prefix: str) -> None:
        last = self._noted.get(prefix)
        if last is not None and self._clock() - last < NOTED:
            return
        if len(self._noted) >= _MOST_REMEMBERED:
            self._noted.clear()
        self._noted[prefix] = self._clock()
        await note_api_key_use(self._session, prefix)


def is_key(text: str) -> bool:
    """Check for the mark of an API key."""
    return text.startswith(MARK)


def _is_right(stored: StoredKey | None, secret: str) -> bool:
    expected = _NO_DIGEST if stored is None else stored.digest
    same = compare_digest(sha256(secret.encode()).digest(), expected)
    return same and stored is not None and stored.is_good


def _draw() -> _Drawn:
    prefix = "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LENGTH))
    return _Drawn(prefix, "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(_SECRET_LENGTH)))


def _check(new: NewKey) -> None:
    naming.check_name(naming.is_tenant(new.org), "organisation", "must have 1 to 200 bytes and no leading underscore")
    naming.check_name(
        naming.is_partition(new.name) and bool(new.name), "name", "must have 1 to 200 bytes of plain text"
    )
    naming.check_name(naming.is_subject(new.subject), "subject", "must have 1 to 500 bytes and not be `system`")
    naming.check_name(naming.is_partition(new.partition), "partition", "must have at most 200 bytes of plain text")
    naming.check_name(naming.are_words(new.roles), "roles", "must be words of 1 to 200 bytes")
    naming.check_name(naming.are_words(new.capabilities), "capabilities", "must be words of 1 to 200 bytes")
    if not new.scopes or not set(new.scopes) <= set(SCOPES):
        raise Refused(
            "The scopes are not among those that exist.", code="SCOPE_UNKNOWN", hint=f"Use some of {', '.join(SCOPES)}."
        )


def _check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise _unknown("of that name")


def _microseconds(amount: float | None, least: float) -> int | None:
    if amount is None:
        return None
    if not least <= amount <= LONGEST:
        raise Refused(
            "A key lasts for at least a second and at most 100 years.",
            code="LIFETIME_INVALID",
            hint="Write it in seconds, or leave it out.",
        )
    return seconds(amount)


def _unknown(prefix: str) -> NotFound:
    return NotFound(
        f"There is no key {prefix} in this organisation.",
        code="API_KEY_UNKNOWN",
        hint="`holdfast keys list --all` shows those there are. Name a key by its prefix, without the secret.",
    )
