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
from holdfast.graph.expressions.values import LISTS, OBJECT

MOST_RECORDED: Final = 1000  # characters of a value in an audit record, about; a condition may read megabytes
_NOTHING_DECLARED: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    type: str
    reads: tuple[str, ...]  # sorted, distinct, `workflow` spelled `context` where both read the same
    evaluate: Evaluate = field(compare=False, repr=False)

    def record(
        self, scope: Mapping[str, Any], result: Any, chosen_edge_ids: Iterable[str], *, has_values: bool = True
    ) -> dict[str, Any]:
        """The audit record of one evaluation. A large value is replaced by its kind and length."""
        reads = self.reads if has_values else ()
        return {
            "expression": self.text,
            "variables": {path: _recorded(reader(path)(scope)) for path in reads},
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


def _recorded(value: Any) -> Any:
    if _room_after(value, MOST_RECORDED) >= 0:
        return value
    kind = "text" if type(value) is str else "object" if type(value) is OBJECT else "list"
    return {"omitted": kind, "length": len(value)}


def _room_after(value: Any, room: int) -> int:
    """Characters that are left of `room` behind the value; the walk ends where none is left."""
    if type(value) is str:
        return room - len(value) - 2
    if type(value) is OBJECT:
        for name, part in value.items():
            room = _room_after(part, room - len(name) - 4)
            if room < 0:
                break
    elif type(value) in LISTS:
        for part in value:
            room = _room_after(part, room - 1)
            if room < 0:
                break
    else:
        room -= 8
    return room
