"""Load a stored artifact, and refuse one that is not the graph that was published."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled, hash_compiled
from holdfast.graph.integrity import require_integrity
from holdfast.graph.model import read_struct
from holdfast.graph.rules import rules_of


def load_compiled(data: bytes | str | dict[str, Any] | None, expected_hash: str | None = None) -> Compiled:
    """Read a stored artifact and prove it is the one that was published (WF-07).

    `expected_hash` is the hash in the definition's own row; both must equal the recomputed hash.
    """
    if not data or data in ("null", b"null"):
        raise DefinitionError(
            "The definition was never compiled.",
            code="WORKFLOW_NOT_COMPILED",
            hint="Publish it again: publishing compiles and freezes the graph.",
        )
    compiled = read_struct(data, Compiled, "compiled graph")
    _verify_hash(compiled, expected_hash)
    if rules_of(compiled.kind).proves_envelope:
        require_integrity(compiled)
    return compiled


def _verify_hash(compiled: Compiled, expected_hash: str | None) -> None:
    actual = hash_compiled(compiled)
    claimed = {compiled.hash} if expected_hash is None else {compiled.hash, expected_hash}
    if claimed == {actual}:
        return
    raise DefinitionError(
        f"The compiled graph of {compiled.name!r} version {compiled.version} does not match its hash.",
        code="WORKFLOW_HASH_MISMATCH",
        hint="It was changed after publication. Restore it from a backup or publish the definition as a new version.",
        actual=actual,
        claimed=sorted(claimed),
    )
