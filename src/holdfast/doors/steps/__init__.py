"""Workflows of steps, written in YAML: the format, its reader, its rules and its JSON Schema."""

from holdfast.doors.steps.model import Assignee, Document, Retry, Step, Transition, Workflow
from holdfast.doors.steps.schema import steps_schema
from holdfast.doors.yaml.problems import Problem

__all__ = ["Assignee", "Document", "Problem", "Retry", "Step", "Transition", "Workflow", "steps_schema"]
