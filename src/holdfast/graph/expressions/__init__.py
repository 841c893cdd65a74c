"""The one typed language for conditions, mappings, keys and rules; see docs/expressions.md."""

from holdfast.graph.expressions.expression import Expression, compile_expression
from holdfast.graph.expressions.refusals import MAX_DEPTH, MAX_DEREFERENCES, MAX_DIGITS, MAX_LENGTH, MAX_NUMBER
from holdfast.graph.expressions.types import NAMESPACES, REQUEST_FACTS, TYPES, with_response

__all__ = [
    "MAX_DEPTH",
    "MAX_DEREFERENCES",
    "MAX_DIGITS",
    "MAX_LENGTH",
    "MAX_NUMBER",
    "NAMESPACES",
    "REQUEST_FACTS",
    "TYPES",
    "Expression",
    "compile_expression",
    "with_response",
]
