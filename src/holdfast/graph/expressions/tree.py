"""The parsed expression: five kinds of node, each with the column it came from."""

from __future__ import annotations

from dataclasses import dataclass

# The only values a literal can have; a list holds scalars.
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar | tuple[Scalar, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Path:
    namespace: str
    fields: tuple[str, ...]
    position: int

    @property
    def name(self) -> str:
        return ".".join((self.namespace, *self.fields))


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Node
    position: int


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # == != > >= < <= in contains
    left: Node
    right: Node
    position: int


@dataclass(frozen=True, slots=True)
class Junction:
    operator: str  # && ||
    operands: tuple[Node, ...]
    position: int


Node = Literal | Path | Negation | Comparison | Junction


def paths(node: Node) -> list[Path]:
    """Every path in reading order, repeated ones included."""
    match node:
        case Path():
            return [node]
        case Literal():
            return []
        case Negation(operand):
            return paths(operand)
        case Comparison(_, left, right):
            return paths(left) + paths(right)
        case Junction(_, operands):
            return [path for operand in operands for path in paths(operand)]
