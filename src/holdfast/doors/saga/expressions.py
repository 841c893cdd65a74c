"""Expressions of a saga, checked while their place is still the author's own: step and option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from holdfast.doors.saga.model import (
    Call,
    Condition,
    Definition,
    Item,
    Sent,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
    every_item,
)
from holdfast.doors.saga.problems import Problem, problem
from holdfast.errors import ExpressionError
from holdfast.graph.expressions import compile_expression, with_response

Written = tuple[str, str, str, Literal["boolean", "any"]]  # step, option, text, what it has to give


def check_written(definition: Definition) -> Iterator[Problem]:
    for item in every_item(definition.items):
        for step, option, text, result in _expressions(item):
            try:
                compile_expression(text, _readable(option), missing="zero", result=result)
            except ExpressionError as error:
                message = f"The {option} of {step!r} is refused: [{error.code}] {error.message}"
                yield problem("STEP_EXPRESSION_INVALID", message, f"steps.{step}.{option}@{error.position}")


def _readable(option: str) -> Mapping[str, str]:
    return with_response({}) if option.startswith("output.") else {}


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
        case Step() | Call() | Sent() | SubFlow():
            for field, text in (item.input or {}).items():
                yield item.name, f"input.{field}", text, "any"
            for field, text in (item.output or {} if isinstance(item, Step | Call) else {}).items():
                yield item.name, f"output.{field}", text, "any"
        case _:
            pass
