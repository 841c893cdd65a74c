"""The door of documents: contracts, the envelopes made of them, and the patches of organisations that fill their slots.

A contract says which states a document has, who moves it between them, and where organisations may add steps of their
own. From it comes the envelope, a graph without an editor. A patch fills the envelope's slots. `compile_effective`
makes one graph of both, the one that runs, and proves that the envelope is whole in it.
"""

from holdfast.doors.envelope.decision_tables.model import TableDefinition
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.load import ContractFile, load_contracts
from holdfast.doors.envelope.reading.schema import contract_schema, patch_schema, table_schema

__all__ = [
    "ContractDefinition",
    "ContractFile",
    "PatchDefinition",
    "TableDefinition",
    "contract_schema",
    "load_contracts",
    "patch_schema",
    "table_schema",
]
