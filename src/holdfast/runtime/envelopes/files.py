"""Files of contracts, compiled for a simulation: the contract, its patch and its tables."""

from __future__ import annotations

from holdfast.doors.envelope import ContractFile
from holdfast.doors.envelope.decision_tables.building import pin_table
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.tables import Tables
from holdfast.errors import NotFound
from holdfast.graph.compiled import Compiled


def compile_file(file: ContractFile, *, type: str | None = None) -> Compiled:
    """Compile a contract of a sound file with the patch for it, if there is one; tables are those of the file."""
    file.require_sound()
    contracts = [contract for contract in file.contracts if type in (None, contract.type)]
    if not contracts:
        wanted = "contract" if type is None else f"contract {type!r}"
        raise NotFound(f"The file has no {wanted}.", code="CONTRACT_NOT_FOUND", hint="Name a file that has one.")
    contract = contracts[-1]
    patches = [patch for patch in file.patches if patch.contract == contract.type]
    tables = Tables(pin_table(table) for table in file.tables)
    return compile_effective(contract, patches[-1] if patches else None, tables=tables)
