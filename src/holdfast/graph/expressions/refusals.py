"""Errors of expressions: one sentence with the text found, one hint with its replacement."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from typing import Final

from lark import Token

from holdfast.errors import ExpressionError

MAX_LENGTH: Final = 500
MAX_DEPTH: Final = 10
MAX_DEREFERENCES: Final = 20
MAX_NUMBER: Final = 2**53
MAX_DIGITS: Final = 32

# Control characters, half characters and those that reorder text on screen: a reviewer could not see them.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)

_FORBIDDEN_CHARACTERS: Final = {
    **dict.fromkeys("+-*/%^~", "Expressions compare values; they do not calculate, join or comment."),
    **dict.fromkeys("{}$`@", "There are no templates: write the path itself, such as input.amount."),
    **dict.fromkeys("#;:?\\", "An expression is one condition: no comments, statements, lambdas or conditionals."),
}

_HINTS_FOR_CHARACTERS: Final = {
    "=": "Equality is written ==.",
    "&": "Both conditions: &&.",
    "|": "Either condition: ||.",
    "'": "Close the string with the quote it began with; escapes are \\\\ \\' \\\" \\n \\r \\t.",
    '"': "Close the string with the quote it began with; escapes are \\\\ \\' \\\" \\n \\r \\t.",
    ".": "A path is namespace.field.field, without spaces and without positions.",
}

_HINTS_FOR_WORDS: Final = {
    "and": "Write && instead of and.",
    "or": "Write || instead of or.",
    "not": "Write ! instead of not.",
    "is": "Write == instead of is.",
    "None": "Write null instead of None.",
    "True": "Write true instead of True.",
    "False": "Write false instead of False.",
}


def refuse(code: str, message: str, text: str, position: int, hint: str) -> ExpressionError:
    return ExpressionError(
        f"{message} (column {position}).", code=f"EXPRESSION_{code}", hint=hint, expression=text, position=position
    )


def check_text(text: object) -> str:
    """The cheap checks that protect every later one."""
    if not isinstance(text, str):
        kind = type(text).__name__
        raise refuse("SYNTAX", f"An expression is text, not {kind}", "", 0, "Put it in quotes.")
    if len(text) > MAX_LENGTH:
        found = f"The expression has {len(text)} characters, at most {MAX_LENGTH} are allowed"
        raise refuse("TOO_LONG", found, text, MAX_LENGTH, "Split the decision over several conditions.")
    hidden = _INVISIBLE.search(text)
    if hidden:
        found = f"Found the invisible character {_codepoint(hidden[0])}"
        raise refuse("FORBIDDEN", found, text, hidden.start(), "Remove it.")
    if not text.strip():
        raise refuse("SYNTAX", "The expression is empty", text, 0, "Write a condition such as input.amount > 100.")
    return text


def too_deep(text: str, position: int) -> ExpressionError:
    found = f"The expression is nested deeper than {MAX_DEPTH} levels"
    return refuse("TOO_DEEP", found, text, position, "Split the decision over several conditions.")


def unexpected_character(text: str, position: int) -> ExpressionError:
    character = text[position]
    found = f"Found {_codepoint(character)}, expected a path, a literal or an operator"
    if text.startswith("=~", position):
        return refuse("FORBIDDEN", "Found =~", text, position, "There are no regular expressions; use == or contains.")
    if character in _FORBIDDEN_CHARACTERS:
        return refuse("FORBIDDEN", found, text, position, _FORBIDDEN_CHARACTERS[character])
    if character == "." and text[:position].rstrip().endswith((")", "]", "'", '"')):
        return refuse("FORBIDDEN", found, text, position, "Only paths have fields; values have no attributes.")
    if character.isascii() and character.isdigit():
        return refuse("SYNTAX", "Found a malformed number", text, position, "Numbers look like 5, -5, 0.5 or 1e3.")
    hint = _HINTS_FOR_CHARACTERS.get(character, "Names and operators are plain ASCII; other text goes in quotes.")
    return refuse("SYNTAX", found, text, position, hint)


def unexpected_token(text: str, token: Token, expected: Set[str]) -> ExpressionError:
    at_end = token.type == "$END"
    found = "Found the end" if at_end else f"Found {str(token)!r}"
    position = len(text) if at_end else token.start_pos or 0
    hint = hint_for_word(str(token))
    if token.type == "COMPARE":
        hint = "Comparisons do not chain: join them with &&."
    if "PATH" not in expected and "NUMBER" in expected:
        hint = "A list holds literals only."
    return refuse(
        "SYNTAX", f"{found}, expected {_describe(expected)}", text, position, hint or "See `holdfast docs expressions`."
    )


def _describe(expected: Set[str]) -> str:
    choices: list[str] = []
    if "PATH" in expected:
        choices.append("a path, a literal, '!' or '('")
    elif "NUMBER" in expected:
        choices.append("a literal")
    if "COMPARE" in expected:
        choices.append("a comparison")
    if "COMMA" in expected:
        choices.append("','")
    if "RSQB" in expected:
        choices.append("']'")
    if "RPAR" in expected:
        choices.append("')'")
    if {"_AND", "_OR"} & expected:
        choices.append("'&&' or '||'")
    if "$END" in expected:
        choices.append("the end")
    return ", ".join(choices)


def _codepoint(character: str) -> str:
    if character.isascii() and character.isprintable():
        return repr(character)
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def hint_for_word(word: str) -> str:
    return _HINTS_FOR_WORDS.get(word, "")
