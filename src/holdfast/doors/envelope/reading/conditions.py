"""The expressions of a contract, checked against the types of its fields."""

from __future__ import annotations

from holdfast.doors.envelope.lowering import variables_of
from holdfast.doors.envelope.model import ContractDefinition
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Mark
from holdfast.errors import ExpressionError
from holdfast.graph.expressions import compile_expression
from holdfast.graph.expressions.parse import parse
from holdfast.graph.expressions.tree import Comparison, Junction, Literal, Negation, Node, Path


class Conditions:
    """The check of the expressions of one contract."""

    def __init__(self, contract: ContractDefinition, findings: Findings) -> None:
        self.variables = variables_of(contract)
        self.money = frozenset(f"entity.{field.name}" for field in contract.fields if field.type == "money")
        self.findings = findings

    def check(self, text: str | None, mark: Mark) -> None:
        """Report a condition that cannot be read, or that compares money with a fraction."""
        if text is None:
            return
        try:
            compile_expression(text, self.variables)
        except ExpressionError as error:
            sentence = error.message.removesuffix(f" (column {error.position}).").rstrip(".")
            place = mark.inside(error.position)
            self.findings.add("CONTRACT_EXPRESSION_INVALID", f"[{error.code}] {sentence}.", place, hint=error.hint)
            return
        for name, position in _fractions(parse(text), self.money):
            message = f"{name!r} is money, and no amount has a fraction of the minor unit."
            self.findings.add("CONTRACT_MONEY_FRACTION", message, mark.inside(position))


def _fractions(node: Node, money: frozenset[str]) -> list[tuple[str, int]]:
    """Find comparisons of money with a fraction: the path and the position of the literal."""
    match node:
        case Negation(operand):
            return _fractions(operand, money)
        case Junction(_, operands):
            return [found for operand in operands for found in _fractions(operand, money)]
        case Comparison(_, left, right):
            return [*_pair(left, right, money), *_pair(right, left, money)]
        case _:
            return []


def _pair(path: Node, literal: Node, money: frozenset[str]) -> list[tuple[str, int]]:
    if not isinstance(path, Path) or path.name not in money or not isinstance(literal, Literal):
        return []
    values = literal.value if isinstance(literal.value, tuple) else (literal.value,)
    is_fraction = any(isinstance(value, float) and not value.is_integer() for value in values)
    return [(path.name, literal.position)] if is_fraction else []
