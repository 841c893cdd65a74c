"""The keys of an issuer, taken from its document: each is bound to its algorithms before any token is seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from holdfast.server.auth.jwt_settings import EDWARDS, RSA, SHORTEST_RSA

MOST_KEYS: Final = 100
MOST_CANDIDATES: Final = 4  # keys tried for one token: under one name there should be one
_CURVES: Final = {"P-256": frozenset({"ES256"}), "P-384": frozenset({"ES384"}), "P-521": frozenset({"ES512"})}
# All that a public key consists of: a document that also holds the private half gets no use out of it here.
_PUBLIC_PARTS: Final = ("kty", "n", "e", "crv", "x", "y")


class KeySet:
    def __init__(self, document: Any, algorithms: Iterable[str]) -> None:
        self._keys: dict[tuple[str | None, str], list[PyJWK]] = defaultdict(list)
        self.size = 0
        for entry in _entries(document):
            self._take(entry, frozenset(algorithms))

    def _take(self, entry: Mapping[str, Any], algorithms: frozenset[str]) -> None:
        kid = entry.get("kid")
        for algorithm in _purposes(entry) & algorithms:
            try:
                key = PyJWK({name: entry[name] for name in _PUBLIC_PARTS if name in entry}, algorithm)
            except (PyJWTError, ValueError, TypeError):
                continue
            if algorithm in RSA and key.key.key_size < SHORTEST_RSA:
                continue
            self.size += 1
            # None lists all of them: for tokens that name no key.
            for name in {None, kid if isinstance(kid, str) else None}:
                self._keys[name, algorithm].append(key)

    def find(self, kid: str | None, algorithm: str) -> list[PyJWK]:
        found = self._keys.get((kid, algorithm), [])
        if kid is None and len(found) > 1:
            return []  # a token has to say which one it means
        return found[:MOST_CANDIDATES]


def _entries(document: Any) -> list[Mapping[str, Any]]:
    listed = cast("Mapping[str, Any]", document).get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("the document has no list of keys")
    keys = cast("list[Any]", listed)[:MOST_KEYS]
    return [cast("dict[str, Any]", key) for key in keys if isinstance(key, dict)]


def _purposes(entry: Mapping[str, Any]) -> frozenset[str]:
    """The algorithms this key may verify, by its type and by its owner's restrictions."""
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        return frozenset()
    match entry.get("kty"):
        case "RSA":
            fitting = RSA
        case "EC":
            fitting = _CURVES.get(str(entry.get("crv")), frozenset[str]())
        case "OKP" if entry.get("crv") == "Ed25519":
            fitting = EDWARDS
        case _:  # a shared secret that lies in a public document is none
            return frozenset()
    meant = entry.get("alg")
    return fitting if meant is None else fitting & {str(meant)}
