"""Tree to closures: decide once, at compile time, so that an evaluation is a few dictionary lookups."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.graph.expressions import values
from holdfast.graph.expressions.tree import Comparison, Junction, Literal, Negation, Node, Path
from holdfast.graph.expressions.types import TypeCheck, reading_path
from holdfast.graph.expressions.values import OBJECT

Evaluate = Callable[[Mapping[str, Any]], Any]

_ORDERS: Final[dict[str, values.Order]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def reader(path: str) -> Evaluate:
    """Compile a path to a reader that follows dictionaries; any other value on the way reads as null."""
    namespace, *fields = path.split(".")
    if not fields:
        return lambda scope: scope.get(namespace)
    if len(fields) == 1:
        return _field_reader(namespace, fields[0])

    def read(scope: Mapping[str, Any]) -> Any:
        value: Any = scope.get(namespace)
        for field in fields:
            if type(value) is not OBJECT:
                return None
            value = value.get(field)
        return value

    return read


def _field_reader(namespace: str, field: str) -> Evaluate:
    def read(scope: Mapping[str, Any]) -> Any:
        value: Any = scope.get(namespace)
        return value.get(field) if type(value) is OBJECT else None

    return read


class Compiler:
    """The closures of one checked tree."""

    def __init__(self, types: TypeCheck, missing_is_zero: bool) -> None:
        self.types = types
        self.missing_is_zero = missing_is_zero

    def closure(self, node: Node) -> Evaluate:
        match node:
            case Literal(value):
                return lambda scope: value
            case Path():
                return reader(reading_path(node.name))
            case Negation(operand):
                test = self.closure(operand)
                return lambda scope: test(scope) is not True
            case Junction():
                return self._junction(node)
            case Comparison():
                return self._comparison(node)

    def _junction(self, node: Junction) -> Evaluate:
        tests = [self.closure(operand) for operand in node.operands]
        if len(tests) == 2:
            first, second = tests
            if node.operator == "&&":
                return lambda scope: first(scope) is True and second(scope) is True
            return lambda scope: first(scope) is True or second(scope) is True
        if node.operator == "&&":
            return lambda scope: all(test(scope) is True for test in tests)
        return lambda scope: any(test(scope) is True for test in tests)

    def _comparison(self, node: Comparison) -> Evaluate:
        left, right = self.closure(node.left), self.closure(node.right)
        temporal = "time" in (self.types.type_of(node.left), self.types.type_of(node.right))
        match node.operator:
            case "==":
                return _pairwise(values.equal_moments if temporal else values.equal, left, right)
            case "!=":
                same = _pairwise(values.equal_moments if temporal else values.equal, left, right)
                return lambda scope: not same(scope)
            case "in":
                return _pairwise(values.moment_member if temporal else values.member, left, right)
            case "contains":
                return _pairwise(values.contains_moment if temporal else values.contains, left, right)
            case _:
                return self._ordering(node, left, right, temporal)

    def _ordering(self, node: Comparison, left: Evaluate, right: Evaluate, temporal: bool) -> Evaluate:
        order = _ORDERS[node.operator]
        if temporal:
            return _pairwise(partial(values.moments_in_order, order), left, right)
        if not self.missing_is_zero:
            return _pairwise(partial(values.in_order, order), left, right)
        numeric = "number" in (self.types.type_of(node.left), self.types.type_of(node.right))
        return _pairwise(partial(values.in_order_from_zero, order, numeric), left, right)


def _pairwise(test: Callable[[Any, Any], bool], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope: test(left(scope), right(scope))
