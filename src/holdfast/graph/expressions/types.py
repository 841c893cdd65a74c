"""Types of an expression: the variables it reads and the comparisons it makes, checked before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from holdfast.errors import ExpressionError
from holdfast.graph.expressions.refusals import hint_for_word, refuse
from holdfast.graph.expressions.timestamps import read_moment
from holdfast.graph.expressions.tree import Comparison, Junction, Literal, Negation, Node, Path, Scalar

NAMESPACES: Final = frozenset({"entity", "actor", "org", "context", "workflow", "input", "now", "response"})
KNOWN: Final[Mapping[str, str]] = {"now": "time", "instance_id": "string", "step_name": "string"}  # always there
TYPES: Final = frozenset({"number", "string", "boolean", "list", "object", "time", "any"})
FREE: Final[Mapping[str, str]] = {"input": "any", "context": "any"}  # what may be read where nothing is declared
UNDECLARED: Final[Mapping[str, str]] = {**FREE, **KNOWN}

# What `context` says of the request that started a workflow, whatever the state holds under these names.
REQUEST_FACTS: Final = ("tenant_id", "partition_id", "subject_id", "correlation_id")

_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_ORDERED: Final = frozenset({"number", "string", "time"})
_LITERAL_TYPES: Final = {str: "string", int: "number", float: "number", bool: "boolean", tuple: "list"}


def canonical_path(path: str) -> str:
    """Replace `workflow`, another name of `context`; behind the type check only the latter exists."""
    head, dot, rest = path.partition(".")
    return f"context{dot}{rest}" if head == "workflow" else path


def reading_path(path: str) -> str:
    """The path where a value is read. Only names of request facts tell the state (`workflow`) from the `context`."""
    parts = path.split(".", 2)
    return path if len(parts) > 1 and parts[1] in REQUEST_FACTS else canonical_path(path)


def declare(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The declarations that an expression is checked against."""
    if not variables:
        return UNDECLARED
    declared = dict(KNOWN)
    for path, kind in variables.items():
        if not _PATH.fullmatch(path) or path.partition(".")[0] not in NAMESPACES:
            raise _bad_declaration(f"{path!r} is not a path in a known namespace", NAMESPACES)
        if kind not in TYPES or (path == "now" and kind != "time"):
            raise _bad_declaration(f"{path!r} cannot be declared as {kind!r}", TYPES)
        declared[canonical_path(path)] = kind
    return declared


def with_response(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The declarations of an output mapping: what a step answered may be read there, and nowhere else."""
    if any(path.partition(".")[0] == "response" for path in variables):
        return variables
    return {**(variables or FREE), "response": "any"}


def _bad_declaration(message: str, choices: frozenset[str]) -> ExpressionError:
    hint = f"Choose one of {', '.join(sorted(choices))}."
    return ExpressionError(f"The declared variable {message}.", code="EXPRESSION_DECLARATION", hint=hint)


class TypeCheck:
    """The type of each node of one expression, or a refusal at its column."""

    def __init__(self, text: str, declared: Mapping[str, str]) -> None:
        self.text = text
        self.declared = declared

    def type_of(self, node: Node) -> str:
        match node:
            case Literal(value):
                return literal_type(value)
            case Path():
                return self._path(node)
            case Negation(operand):
                self.require_boolean(operand, "'!'")
            case Junction(operator, operands):
                for operand in operands:
                    self.require_boolean(operand, f"'{operator}'")
            case Comparison():
                self._comparison(node)
        return "boolean"

    def require_boolean(self, node: Node, user: str) -> str:
        kind = self.type_of(node)
        if kind not in ("boolean", "any"):
            hint = "Compare it with something, for example with == or >."
            raise self._mismatch(f"{user} needs a boolean, found {kind}", node.position, hint)
        return kind

    def _path(self, path: Path) -> str:
        name = canonical_path(path.name)
        if name in self.declared:
            return self.declared[name]
        if any(other.startswith(f"{name}.") for other in self.declared):
            return "object"
        prefix = name
        while "." in prefix:
            prefix = prefix.rpartition(".")[0]
            if prefix in self.declared:
                return self._inside(path, prefix)
        raise self._unknown(path)

    def _inside(self, path: Path, prefix: str) -> str:
        kind = self.declared[prefix]
        if kind not in ("any", "object"):
            raise self._mismatch(
                f"{prefix} is declared as {kind} and has no fields", path.position, "Shorten the path."
            )
        return "any"

    def _unknown(self, path: Path) -> ExpressionError:
        similar = difflib.get_close_matches(path.name, self.declared, n=1)
        declared = ", ".join(sorted(self.declared)[:12])
        hint = f"Did you mean {similar[0]}?" if similar else f"Declared are: {declared}."
        return refuse(
            "UNKNOWN_NAME",
            f"Found the name {path.name!r}, expected a declared path",
            self.text,
            path.position,
            hint_for_word(path.name) or hint,
        )

    def _comparison(self, node: Comparison) -> None:
        left, right = self.type_of(node.left), self.type_of(node.right)
        match node.operator:
            case "in":
                self._membership(node, node.left, left, node.right, right)
            case "contains" if left == "string":
                if right not in ("string", "any"):
                    raise self._mismatch(f"A string contains strings, found {right}", node.position, "Quote the value.")
            case "contains":
                self._membership(node, node.right, right, node.left, left)
            case "==" | "!=":
                self._equality(node, left, right)
            case _:
                self._ordering(node, left, right)

    def _membership(self, node: Comparison, item: Node, item_type: str, items: Node, items_type: str) -> None:
        if items_type not in ("list", "any"):
            hint = "Write a list such as ['a', 'b'] or a path to one."
            raise self._mismatch(f"'{node.operator}' needs a list, found {items_type}", items.position, hint)
        if isinstance(items, Literal) and isinstance(items.value, tuple):
            for value in items.value:
                if not _comparable(item_type, literal_type(value)) and not _is_moment(item_type, value):
                    found = f"A {item_type} never equals {value!r}"
                    raise self._mismatch(found, item.position, "Use values of the same type.")

    def _equality(self, node: Comparison, left: str, right: str) -> None:
        if not (_comparable(left, right) or self._moment(node, left, right)):
            found = f"'{node.operator}' compares values of one type, found {left} and {right}"
            raise self._mismatch(found, node.position, "Compare with a value of the same type, or with null.")

    def _ordering(self, node: Comparison, left: str, right: str) -> None:
        kinds = {left, right} - {"any"}
        if kinds <= _ORDERED and (len(kinds) < 2 or self._moment(node, left, right)):
            return
        found = f"'{node.operator}' orders two numbers, two strings or two times, found {left} and {right}"
        raise self._mismatch(found, node.position, _ordering_hint(kinds))

    def _moment(self, node: Comparison, left: str, right: str) -> bool:
        """Check for a time on one side and a string literal that spells one on the other."""
        return (_literal_moment(node.right) and left == "time") or (_literal_moment(node.left) and right == "time")

    def _mismatch(self, message: str, position: int, hint: str) -> ExpressionError:
        return refuse("TYPE", message, self.text, position, hint)


def _ordering_hint(kinds: set[str]) -> str:
    if kinds == {"time", "string"}:
        return "Spell the moment in ISO-8601, as '2026-01-31T12:00:00+00:00', or declare the path as time."
    return "Compare values of one type, or use == and !=."


def literal_type(value: Scalar | tuple[Scalar, ...]) -> str:
    return "null" if value is None else _LITERAL_TYPES[type(value)]


def _comparable(left: str, right: str) -> bool:
    return left == right or bool({left, right} & {"any", "null"})


def _is_moment(kind: str, value: Scalar) -> bool:
    return kind == "time" and read_moment(value) is not None


def _literal_moment(node: Node) -> bool:
    return isinstance(node, Literal) and read_moment(node.value) is not None
