"""The public value: an expression that was checked once and can be evaluated any number of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from holdfast.graph.expressions.compile import Compiler, Evaluate, reader
from holdfast.graph.expressions.parse import parse
from holdfast.graph.expressions.tree import Literal as LiteralNode
from holdfast.graph.expressions.tree import paths
from holdfast.graph.expressions.types import TypeCheck, declare, reading_path

_NOTHING_DECLARED: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    type: str
    reads: tuple[str, ...]  # sorted, distinct, `workflow` spelled `context` where both read the same
    evaluate: Evaluate = field(compare=False, repr=False)

    def record(self, scope: Mapping[str, Any], result: Any, chosen_edge_ids: Iterable[str]) -> dict[str, Any]:
        """The audit record of one evaluation."""
        return {
            "expression": self.text,
            "variables": {path: reader(path)(scope) for path in self.reads},
            "result": result,
            "chosen_edge_ids": list(chosen_edge_ids),
        }


def compile_expression(
    text: str,
    variables: Mapping[str, str] = _NOTHING_DECLARED,
    *,
    missing: Literal["null", "zero"] = "null",
    result: Literal["boolean", "any"] = "boolean",
) -> Expression:
    """Parse, check and compile `text`; raise ExpressionError with the column and the expected token.

    `variables` maps declared paths or namespaces to types; without any, `input` and `context` may be read freely.
    """
    tree = parse(text)
    types = TypeCheck(text, declare(variables))
    kind = types.require_boolean(tree, "A condition") if result == "boolean" else types.type_of(tree)
    evaluate = Compiler(types, missing == "zero").closure(tree)
    if result == "boolean" and kind == "any":
        evaluate, kind = _strict(evaluate), "boolean"
    if kind == "list" and isinstance(tree, LiteralNode):
        evaluate = _copied(evaluate)
    reads = sorted({reading_path(path.name) for path in paths(tree)})
    return Expression(text, kind, tuple(reads), evaluate)


def _copied(evaluate: Evaluate) -> Evaluate:
    # A caller may change the list it got; the literal must stay as written.
    return lambda scope: list(evaluate(scope))


def _strict(evaluate: Evaluate) -> Evaluate:
    return lambda scope: evaluate(scope) is True
