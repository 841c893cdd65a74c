"""The one typed language for conditions, mappings, keys and rules; see docs/expressions.md."""

from holdfast.compiler.expressions.expression import Expression, compile_expression
from holdfast.compiler.expressions.refusals import MAX_DEPTH, MAX_DEREFERENCES, MAX_DIGITS, MAX_LENGTH, MAX_NUMBER
from holdfast.compiler.expressions.types import NAMESPACES, TYPES

__all__ = [
    "MAX_DEPTH",
    "MAX_DEREFERENCES",
    "MAX_DIGITS",
    "MAX_LENGTH",
    "MAX_NUMBER",
    "NAMESPACES",
    "TYPES",
    "Expression",
    "compile_expression",
]
