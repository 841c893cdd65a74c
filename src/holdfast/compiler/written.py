"""Expressions as they stand in a written saga, checked while the place is still the author's own: step and option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from holdfast.compiler.expressions import compile_expression
from holdfast.definitions.model import Condition, Definition, Item, Sleep, SubFlow, WaitEvent, every_item
from holdfast.definitions.problems import Problem, problem
from holdfast.errors import ExpressionError

Written = tuple[str, str, str, Literal["boolean", "any"]]  # step, option, text, what it has to give


def check_written(definition: Definition) -> Iterator[Problem]:
    for item in every_item(definition.items):
        for step, option, text, result in _expressions(item):
            try:
                compile_expression(text, {}, missing="zero", result=result)
            except ExpressionError as error:
                message = f"The {option} of {step!r} is refused: [{error.code}] {error.message}"
                yield problem("STEP_EXPRESSION_INVALID", message, f"steps.{step}.{option}@{error.position}")


def _expressions(item: Item) -> Iterator[Written]:
    match item:
        case Condition():
            yield item.name, "expression", item.expression, "boolean"
        case WaitEvent(key=str(key)):
            yield item.name, "key", key, "any"
        case Sleep():
            for option, text in (("after", item.after), ("until", item.until)):
                if text is not None:
                    yield item.name, option, text, "any"
        case SubFlow():
            for field, text in (item.input or {}).items():
                yield item.name, f"input.{field}", text, "any"
        case _:
            pass
