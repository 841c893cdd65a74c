"""Read contracts and patches: from files with places by line and column, from data with places by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from holdfast.doors.envelope.decision_tables.building import build_table
from holdfast.doors.envelope.decision_tables.model import TableDefinition
from holdfast.doors.envelope.decision_tables.problems import TABLE_REMEDIES
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.building import ContractDraft, PatchDraft, build_contract, build_patch
from holdfast.doors.envelope.reading.format import FILE
from holdfast.doors.envelope.reading.patch_checks import check_patch
from holdfast.doors.envelope.reading.problems import REMEDIES, findings_of
from holdfast.doors.envelope.reading.rules import check_contract
from holdfast.doors.shapes import Items
from holdfast.doors.yaml.data import DataFindings, tree_of
from holdfast.doors.yaml.decode import Taker
from holdfast.doors.yaml.problems import Findings, Problem, in_order, require_sound
from holdfast.doors.yaml.reading import first_key, read_yaml
from holdfast.doors.yaml.tree import Mapping, Sequence, Tree
from holdfast.errors import DefinitionError
from holdfast.graph.diagnostics import Diagnostic


class ContractFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of contracts, patches and decision tables: the sound ones, and every problem of the file."""

    file: str
    contracts: tuple[ContractDefinition, ...] = ()
    patches: tuple[PatchDefinition, ...] = ()
    drafts: tuple[PatchDraft, ...] = ()  # of the patches, to locate what is wrong with them within a contract
    tables: tuple[TableDefinition, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_sound(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    def require_sound(self) -> ContractFile:
        """Return the file, or raise a DefinitionError that lists all problems in its `diagnostics`."""
        require_sound(self.problems)
        return self


def is_contract_file(text: str) -> bool:
    """Check whether a file begins as one of contracts, patches or tables."""
    return first_key(text) in FILE.table


def load_contracts(text: str, *, name: str = "file.yaml") -> ContractFile:
    """Load the sound contracts and patches of a file, and every problem of the file; no text makes it raise."""
    findings = findings_of(name)
    tree, _ = read_yaml(text, findings)
    if tree is None:
        return ContractFile(file=name, problems=in_order(findings.problems))
    is_read = findings.errors == 0
    written = _entries(tree, findings)
    drafts = [draft for entry in written["contracts"] if (draft := _contract(entry, findings)) is not None]
    patches = [draft for entry in written["patches"] if (draft := _patch(entry, findings)) is not None]
    tables = [table for entry in written["tables"] if (table := build_table(entry, findings)) is not None]
    if not is_read:
        drafts, patches, tables = [], [], []  # characters were left out: nothing is what its author wrote
    _report_repeated(drafts, findings)
    _report_repeated_tables(written["tables"], tables, findings)
    return ContractFile(
        file=name,
        contracts=tuple(draft.contract for draft in drafts),
        patches=tuple(draft.patch for draft in patches),
        drafts=tuple(patches),
        tables=tuple(tables),
        problems=in_order(findings.problems),
    )


def require_contract(data: Any, known: Iterable[Diagnostic] = ()) -> ContractDefinition:
    """Read a contract from data, or raise a DefinitionError with all of its problems and those known already."""
    findings = DataFindings("contract", REMEDIES)
    draft = _contract(tree_of(data, findings), findings)
    _require_none("contract", _called(data, "type"), (*known, *findings.diagnostics))
    assert draft is not None
    return draft.contract


def require_patch(data: Any, known: Iterable[Diagnostic] = ()) -> PatchDefinition:
    """Read a patch from data, or raise a DefinitionError with all of its problems and those known already."""
    findings = DataFindings("patch", REMEDIES)
    draft = _patch(tree_of(data, findings), findings)
    _require_none("patch", _called(data, "contract"), (*known, *findings.diagnostics))
    assert draft is not None
    return draft.patch


def require_table(data: Any, known: Iterable[Diagnostic] = ()) -> TableDefinition:
    """Read a decision table from data, or raise a DefinitionError with all of its problems and those known already.

    Warnings, such as rows that overlap, refuse nothing."""
    findings = DataFindings("table", TABLE_REMEDIES)
    table = build_table(tree_of(data, findings), findings)
    errors = [found for found in findings.diagnostics if found.severity == "error"]
    _require_none("table", _called(data, "name"), (*known, *(findings.diagnostics if errors else ())))
    assert table is not None
    return table


def _entries(tree: Tree, findings: Findings) -> dict[str, list[Tree]]:
    """Collect the entries per list of the file, those under a single key included."""
    found: dict[str, list[Tree]] = {"contracts": [], "patches": [], "tables": []}
    taker = Taker(findings, "CONTRACT")
    if not isinstance(tree, Mapping):
        taker.take(FILE, tree, ())
        return found
    for key, entry in tree.entries.items():
        if key in ("contract", "patch"):
            found["contracts" if key == "contract" else "patches"].append(entry.tree)
        elif key not in FILE.table:
            taker.unknown_key(key, entry.key, FILE)
        else:
            found[key] += _items(key, entry.tree, taker)
    return found


def _items(key: str, tree: Tree, taker: Taker) -> Iterator[Tree]:
    shape = FILE.table[key].shape
    assert isinstance(shape, Items)
    if not isinstance(tree, Sequence):
        taker.wrong_type((key,), "a list", tree)
    elif not shape.least <= len(tree.items) <= shape.most:
        message = f"{key!r} has {len(tree.items)} entries; it must have {shape.least} to {shape.most}."
        taker.refuse(f"{taker.prefix}_VALUE_INVALID", message, tree.mark)
    else:
        yield from tree.items


def _contract(tree: Tree, findings: Findings) -> ContractDraft | None:
    """Build and check a contract; None if anything is wrong with it."""
    before = findings.errors
    draft = build_contract(tree, findings)
    if draft is not None:
        check_contract(draft, findings)
    return draft if findings.errors == before else None


def _patch(tree: Tree, findings: Findings) -> PatchDraft | None:
    """Build and check a patch; None if anything is wrong with it."""
    before = findings.errors
    draft = build_patch(tree, findings)
    if draft is not None:
        check_patch(draft, findings)
    return draft if findings.errors == before else None


def _report_repeated(drafts: list[ContractDraft], findings: Findings) -> None:
    seen: set[tuple[str, int]] = set()
    for draft in drafts:
        identity = (draft.contract.type, draft.contract.version)
        if identity in seen:
            message = f"The contract {identity[0]!r} version {identity[1]} is there twice."
            findings.add("CONTRACT_DUPLICATE", message, draft.mark(("type",)))
        seen.add(identity)


def _report_repeated_tables(entries: list[Tree], tables: list[TableDefinition], findings: Findings) -> None:
    seen: set[tuple[str, int]] = set()
    for table in tables:
        if (table.name, table.version) in seen:
            message = f"The table {table.name!r} version {table.version} is there twice."
            findings.add("TABLE_DUPLICATE", message, entries[0].mark)
        seen.add((table.name, table.version))


def _called(data: Any, key: str) -> str:
    name = cast(dict[str, Any], data).get(key) if isinstance(data, dict) else None
    return repr(name)[:100] if isinstance(name, str) else "without a name"


def _require_none(noun: str, name: str, found: tuple[Diagnostic, ...]) -> None:
    if not found:
        return
    first = found[0]
    more = f" ({len(found)} problems in all)" if len(found) > 1 else ""
    raise DefinitionError(
        f"The {noun} {name} cannot be built: {first.message}{more}",
        code=first.code,
        hint=first.hint,
        diagnostics=found,
        place=first.place,
    )
