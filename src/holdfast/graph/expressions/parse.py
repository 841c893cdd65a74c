"""Text to tree. Everything that could recurse is bounded by the tokens first, so hostile nesting costs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, Final, cast

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from holdfast.graph.expressions import refusals
from holdfast.graph.expressions.refusals import (
    MAX_DEPTH,
    MAX_DEREFERENCES,
    MAX_DIGITS,
    MAX_NUMBER,
    check_text,
    refuse,
    too_deep,
)
from holdfast.graph.expressions.tree import Comparison, Junction, Literal, Negation, Node, Path, Scalar, paths

_OPERAND_ENDS: Final = frozenset({"PATH", "STRING", "NUMBER", "TRUE", "FALSE", "NULL", "RPAR", "RSQB"})
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_KEYWORDS: Final[dict[str, Scalar]] = {"TRUE": True, "FALSE": False, "NULL": None}


@cache  # not at import: most commands never meet an expression, and none should wait for the grammar
def _parser() -> Any:
    grammar = resources.files("holdfast.graph.expressions").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True)


def parse(text: str) -> Node:
    check_text(text)
    return _parsed(text)


@lru_cache(maxsize=1024)  # publishing looks at an expression several times, and wide flows repeat theirs
def _parsed(text: str) -> Node:
    try:
        _screen(text, list(_parser().lex(text)))
        root = _Builder(text).node(_parser().parse(text), 1)
    except UnexpectedCharacters as error:
        raise refusals.unexpected_character(text, cast("Any", error).pos_in_stream) from None
    except UnexpectedToken as error:
        raise refusals.unexpected_token(text, cast("Any", error).token, error.accepts or error.expected) from None
    _check_dereferences(text, root)
    return root


def _screen(text: str, tokens: list[Token]) -> None:
    """Refuse by token what the grammar would only call unexpected, and nesting before anything recurses."""
    for position in _nesting_beyond_limit(tokens):
        raise too_deep(text, position)
    for token in tokens:
        if token.type == "PATH":
            _check_fields(text, token)
    for before, token in pairwise(tokens):
        if before.type in _OPERAND_ENDS:
            _check_after_operand(text, token)


def _nesting_beyond_limit(tokens: list[Token]) -> Iterator[int]:
    open_parentheses = negations = 0
    for token in tokens:
        negations = negations + 1 if token.type == "NOT" else 0
        open_parentheses += (token.type == "LPAR") - (token.type == "RPAR")
        if max(negations, open_parentheses) > MAX_DEPTH:
            yield _position(token)


def _check_fields(text: str, token: Token) -> None:
    for field in token.split("."):
        if field.startswith("__") or field.endswith("__"):
            found = f"Found the name {field!r}"
            raise refuse("FORBIDDEN", found, text, _position(token), "Names with double underscores are never data.")


def _check_after_operand(text: str, token: Token) -> None:
    if token.type == "LPAR":
        hint = "There are no calls; join conditions with && or ||."
        raise refuse("FORBIDDEN", "Found a call", text, _position(token), hint)
    if token.type == "LSQB":
        hint = "There is no indexing; lists are tested with in and contains."
        raise refuse("FORBIDDEN", "Found an index", text, _position(token), hint)
    if token.type == "NUMBER" and token.startswith("-"):
        hint = "Expressions compare values; they do not calculate."
        raise refuse("FORBIDDEN", "Found a subtraction", text, _position(token), hint)


class _Builder:
    """Lark's tree to ours, for one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def node(self, branch: Tree[Token], depth: int) -> Node:
        children = branch.children
        if depth > MAX_DEPTH:
            raise too_deep(self.text, branch.meta.start_pos)
        match branch.data:
            case "any_of" | "all_of":
                operands = tuple(self.node(_tree(child), depth + 1) for child in children)
                return Junction("||" if branch.data == "any_of" else "&&", operands, operands[0].position)
            case "comparison":
                left, right = (self.node(_tree(children[side]), depth + 1) for side in (0, 2))
                operator = _token(children[1])
                return Comparison(str(operator), left, right, _position(operator))
            case "negation":
                return Negation(self.node(_tree(children[1]), depth + 1), _position(_token(children[0])))
            case "path":
                token = _token(children[0])
                namespace, *fields = token.split(".")
                return Path(namespace, tuple(fields), _position(token))
            case "list":
                return self._list(branch)
            case _:
                token = _token(children[0])
                return Literal(self._scalar(token), _position(token))

    def _list(self, branch: Tree[Token]) -> Literal:
        tokens = [_token(_tree(child).children[0]) for child in branch.children]
        return Literal(tuple(self._scalar(token) for token in tokens), branch.meta.start_pos)

    def _scalar(self, token: Token) -> Scalar:
        if token.type == "NUMBER":
            return self._number(token)
        if token.type == "STRING":
            return self._string(token)
        return _KEYWORDS[token.type]

    def _number(self, token: Token) -> int | float:
        digits = sum(character.isdigit() for character in token)
        value = float(token) if digits > MAX_DIGITS or not token.lstrip("-").isdigit() else int(token)
        if digits > MAX_DIGITS or abs(value) > MAX_NUMBER:
            found = f"The number {token[:40]} is above 2^53 or has more than {MAX_DIGITS} digits"
            hint = "Compare large identifiers as strings."
            raise refuse("NUMBER_TOO_LARGE", found, self.text, _position(token), hint)
        return value

    def _string(self, token: Token) -> str:
        def unescape(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPES:
                position = _position(token) + 1 + match.start()
                hint = "Escapes are \\\\ \\' \\\" \\n \\r \\t."
                raise refuse("SYNTAX", f"Found the unknown escape {match[0]}", self.text, position, hint)
            return _ESCAPES[match[1]]

        return _ESCAPE.sub(unescape, token[1:-1])


def _check_dereferences(text: str, root: Node) -> None:
    total = 0
    for path in paths(root):
        total += len(path.fields)
        if total > MAX_DEREFERENCES:
            found = f"The expression follows more than {MAX_DEREFERENCES} fields"
            hint = "Shorten the paths or split the decision over several conditions."
            raise refuse("TOO_MANY_PATHS", found, text, path.position, hint)


def _position(token: Token) -> int:
    return token.start_pos or 0


def _tree(child: Tree[Token] | Token) -> Tree[Token]:
    assert isinstance(child, Tree)
    return child


def _token(child: Tree[Token] | Token) -> Token:
    assert isinstance(child, Token)
    return child
