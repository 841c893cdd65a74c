"""Workflows of steps, written in YAML: the format, its reader, its rules and its JSON Schema."""

from holdfast.definitions.steps.model import Assignee, Document, Retry, Step, Transition, Workflow
from holdfast.definitions.steps.problems import Problem
from holdfast.definitions.steps.schema import steps_schema

__all__ = ["Assignee", "Document", "Problem", "Retry", "Step", "Transition", "Workflow", "steps_schema"]
