"""Machines, written as JSON: the formats of blueprint and policy, their reader, rules, lowering and JSON Schemas."""

from holdfast.doors.machine.definition import MachineDefinition
from holdfast.doors.machine.door import MachineSource
from holdfast.doors.machine.problems import Problem
from holdfast.doors.machine.schema import blueprint_schema, policy_schema

__all__ = ["MachineDefinition", "MachineSource", "Problem", "blueprint_schema", "policy_schema"]
