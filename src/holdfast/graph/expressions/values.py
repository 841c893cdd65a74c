"""Comparison of values of a scope. Odd data is never an error: it is simply not equal and not in order.

Types are compared exactly: JSON knows no subclasses, and a boolean is not a number here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.graph.expressions.timestamps import read_moment

OBJECT: Final[type[Any]] = dict
LIST: Final[type[Any]] = list
LISTS: Final = frozenset({list, tuple})  # a list literal is a tuple
WHOLES: Final = frozenset({list, dict})  # values of a scope, which hold no tuples
NUMBERS: Final = frozenset({int, float})

Order = Callable[[Any, Any], bool]  # one of operator.lt, le, gt, ge


def is_number(value: Any) -> bool:
    return type(value) in NUMBERS


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values, so that 1 equals 1.0 but never true, at any depth."""
    if type(left) in WHOLES and type(left) is type(right) and left != right:
        return False  # Python takes 1 for true, so what differs for it differs here: large data is refused in C
    return _same(left, right)


def _same(left: Any, right: Any) -> bool:
    if type(left) in NUMBERS:
        return type(right) in NUMBERS and left == right
    if type(left) in LISTS:
        return type(right) in LISTS and len(left) == len(right) and all(map(_same, left, right))
    if type(left) is not type(right):
        return False
    return _same_objects(left, right) if type(left) is OBJECT else left == right


def _same_objects(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())


def equal_moments(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    moment = read_moment(left)
    return moment is not None and moment == read_moment(right)


def member(item: Any, items: Any) -> bool:
    if type(items) not in LISTS:
        return False
    if type(items) is LIST and type(item) is not tuple and item not in items:
        return False  # as in `equal`
    return any(equal(item, other) for other in items)


def moment_member(item: Any, items: Any) -> bool:
    return type(items) in LISTS and any(equal_moments(item, other) for other in items)


def contains_moment(items: Any, item: Any) -> bool:
    return moment_member(item, items)


def contains(whole: Any, part: Any) -> bool:
    if type(whole) is str:
        return type(part) is str and part in whole
    return member(part, whole)


def in_order(order: Order, left: Any, right: Any) -> bool:
    if is_number(left):
        return is_number(right) and order(left, right)
    return type(left) is str and type(right) is str and order(left, right)


def moments_in_order(order: Order, left: Any, right: Any) -> bool:
    first, second = read_moment(left), read_moment(right)
    return first is not None and second is not None and order(first, second)


def in_order_from_zero(order: Order, numeric: bool, left: Any, right: Any) -> bool:
    """Compare like `in_order`, with a missing number read as 0; `numeric`: a number was declared or written."""
    if left is None and (numeric or is_number(right)):
        left = 0
    if right is None and is_number(left):
        right = 0
    return in_order(order, left, right)
