"""The definition of a machine: a blueprint and perhaps a policy, read, checked and ready to be lowered."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Final, Self, cast

import msgspec

from holdfast.doors.machine.building import build_blueprint, build_policy
from holdfast.doors.machine.chart import to_chart
from holdfast.doors.machine.format import BLUEPRINT, POLICY
from holdfast.doors.machine.lowering import LARGEST, lower, resolved_size
from holdfast.doors.machine.model import Blueprint, Policy
from holdfast.doors.machine.policy_rules import check_pair, check_policy
from holdfast.doors.machine.problems import REMEDIES, Findings, Problem, refuse
from holdfast.doors.machine.reading import Document, Written, read_document
from holdfast.doors.machine.rules import check_blueprint
from holdfast.doors.shapes import Field, Fields, Items
from holdfast.graph.checks.check import check
from holdfast.graph.model import Graph, dump_graph
from holdfast.payloads import hash_json

FILES: Final = ("blueprint", "policy")
# Reported already, in the words of the format and at a better place, or no defect of a machine.
KNOWN: Final = frozenset({"NO_DEFAULT_EDGE"})


class MachineDefinition:
    """A sound machine. `parse` reads one and raises all of its problems at once."""

    def __init__(
        self, blueprint: Blueprint, policy: Policy | None, documents: dict[str, Any], warnings: tuple[Problem, ...] = ()
    ) -> None:
        self._blueprint = blueprint
        self._policy = policy
        self._graph = lower(blueprint, policy, 1)
        self.documents = documents  # the blueprint and the policy, or None, as they were written
        self.warnings = warnings

    @classmethod
    def parse(cls, blueprint: Written, policy: Written | None = None, *, files: tuple[str, str] = FILES) -> Self:
        """Read JSON text or data; a document `{"blueprint": …, "policy": …}` holds both. `files` name them."""
        found = read_machine(blueprint, policy, files)
        refuse(found.problems)
        assert found.blueprint is not None, "refused otherwise"
        return cls(found.blueprint, found.policy, found.documents, found.problems)

    @property
    def name(self) -> str:
        """The name it is published under: `{environment}.{definition}`."""
        return self._graph.name

    @property
    def environment(self) -> str:
        return self._blueprint.environment

    @property
    def definition(self) -> str:
        return self._blueprint.name

    @property
    def blueprint_version(self) -> int:
        return self._blueprint.version

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the content that matters: the graph without its version and the policy's name and hash."""
        content = dump_graph(self._graph)
        config = {key: value for key, value in content["config"].items() if key not in ("policy", "policy_name")}
        return hash_json({**content, "config": config})

    def graph(self, version: int = 1) -> Graph:
        """Make the effective graph under a version number."""
        return self._graph if version == self._graph.version else lower(self._blueprint, self._policy, version)

    def lower(self) -> Graph:
        """Make the effective graph under version 1."""
        return self._graph

    def chart(self) -> str:
        """Draw it as a Mermaid state diagram."""
        return to_chart(self._graph)

    def code(self) -> str:
        """Print it as one JSON document with its keys in the order of the format."""
        shapes = {"blueprint": BLUEPRINT, "policy": POLICY}
        ordered = {key: _ordered(shapes[key], value) for key, value in self.documents.items() if value is not None}
        return json.dumps(ordered, indent=2, ensure_ascii=False) + "\n"


class Found(msgspec.Struct, frozen=True):
    """The outcome of reading: the model as far as it could be read, and every problem."""

    blueprint: Blueprint | None
    policy: Policy | None
    documents: dict[str, Any]
    problems: tuple[Problem, ...]


def read_machine(blueprint: Written, policy: Written | None = None, files: tuple[str, str] = FILES) -> Found:
    """Read and check a machine; never raise."""
    plans, rules = Findings(files[0]), Findings(files[1])
    document = read_document(blueprint, plans)
    if document is not None and policy is None and is_combined(document.content):
        return _read_combined(document)
    other = None if policy is None else read_document(policy, rules)
    return _read_pair(document, other, plans, rules)


def is_combined(content: Any) -> bool:
    """Check if a document holds a blueprint and perhaps a policy."""
    return isinstance(content, dict) and "blueprint" in content and "states" not in content


def _read_combined(document: Document) -> Found:
    content, file = document.content, document.file
    plans, rules = Findings(file, ("blueprint",)), Findings(file, ("policy",))
    for key in sorted(content.keys() - {"blueprint", "policy", "version"}):
        message = f"A machine has no key {key[:80]!r}."
        plans.add("MACHINE_KEY_UNKNOWN", (), message, hint="It takes blueprint and policy.")
    written = None if content.get("policy") is None else document
    return _read_pair(document, written, plans, rules)


def _read_pair(document: Document | None, other: Document | None, plans: Findings, rules: Findings) -> Found:
    blueprint = None if document is None else build_blueprint(plans.inside(document.content), plans)
    policy = None if other is None else build_policy(rules.inside(other.content), rules)
    if blueprint is not None:
        check_blueprint(blueprint, plans)
    if policy is not None:
        check_policy(policy, rules)
        if blueprint is not None:
            check_pair(blueprint, policy, rules)
    if blueprint is not None and not plans.errors and not rules.errors:
        _check_graph(blueprint, policy, plans, rules)
    problems = (*_problems(document, plans), *_problems(other, rules))
    documents = {"blueprint": _content(document, plans), "policy": _content(other, rules)}
    return Found(blueprint, policy, documents, problems)


def _problems(document: Document | None, findings: Findings) -> tuple[Problem, ...]:
    return findings.problems(None, None) if document is None else document.problems(findings)


def _content(document: Document | None, findings: Findings) -> Any:
    return None if document is None else findings.inside(document.content)


def read_policy(policy: Written, file: str = "policy") -> Found:
    """Read and check a policy without its blueprint."""
    findings = Findings(file)
    document = read_document(policy, findings)
    found = None if document is None else build_policy(document.content, findings)
    if found is not None:
        check_policy(found, findings)
    return Found(
        None, found, {"blueprint": None, "policy": _content(document, findings)}, _problems(document, findings)
    )


def _check_graph(blueprint: Blueprint, policy: Policy | None, plans: Findings, rules: Findings) -> None:
    """Run the checks of the graph, which know what the store refuses."""
    if policy is not None and (size := resolved_size(blueprint, policy)) > LARGEST:
        message = f"The rules of all entries have {size} bytes; at most {LARGEST} are kept."
        rules.add("MACHINE_TOO_LARGE", ("rules",), message)
        return
    for found in check(lower(blueprint, policy, 1)):
        if found.code not in KNOWN:
            hint = REMEDIES.get(found.code, found.hint)
            message = f"{found.message.rstrip('.')} ({found.place})."
            plans.add(found.code, (), message, hint=hint, severity=found.severity)


def _ordered(shape: Any, value: Any) -> Any:
    """Sort the keys of known objects as the format lists them."""
    match shape:
        case Field():
            return _ordered(shape.shape, value)
        case Items() if isinstance(value, list):
            return [_ordered(shape.of, item) for item in cast(list[Any], value)]
        case Fields() if isinstance(value, dict):
            given = cast(dict[str, Any], value)
            return {key: _ordered(field, given[key]) for key, field in shape.table.items() if key in given}
        case _:
            return _by_name(value)


def _by_name(value: Any) -> Any:
    """Sort the keys of objects that the format does not know: the store keeps them in an order of its own."""
    if isinstance(value, dict):
        return {key: _by_name(item) for key, item in sorted(cast(dict[str, Any], value).items())}
    return [_by_name(item) for item in cast(list[Any], value)] if isinstance(value, list) else value


def require_policy_target(policy: Written) -> str:
    """Read a sound policy for the name of the machine it is for."""
    found = read_policy(policy)
    refuse(found.problems)
    assert found.policy is not None, "refused otherwise"
    assert found.policy.definition is not None, "refused otherwise"
    return found.policy.definition
