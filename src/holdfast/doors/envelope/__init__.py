"""Contracts and patches: the lifecycle that a developer lays down for a document, and what an organisation adds to it.

A contract has fields, states, verbs that people call, gates that the engine passes, and slots. It compiles to an
envelope. A patch fills slots with steps; envelope and patch compile to the effective graph that runs.
"""

from holdfast.doors.envelope.load import ContractFile, load_contracts
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.schema import contract_schema, patch_schema

__all__ = ["ContractDefinition", "ContractFile", "PatchDefinition", "contract_schema", "load_contracts", "patch_schema"]
