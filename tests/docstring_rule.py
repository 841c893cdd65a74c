"""The rule of docstrings: name the actor, use the field's noun, verb first.

A first line is an imperative ("Lock, in sorted order, …"), a noun phrase ("The rows of one batch") or "Noun:
definition". The check reads words and knows no grammar, so it errs on the quiet side: it reports only openings and
clauses that no imperative and no noun phrase has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ERRORS: Final = Path(__file__).parent.parent / "src" / "holdfast" / "errors.py"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRONOUNS: Final = _words("""
    what who whom whoever whatever whichever nobody somebody everybody everything nothing something anything those
    these this that it its they there
""")
CONJUNCTIONS: Final = _words("""
    how where when why whether which if as than because unless until only not no too
""")
PREPOSITIONS: Final = _words("""
    of in on at by for from to with without apart beside beneath below above after
""")
# Verbs whose third person opened first lines; a list and no pattern, since plural nouns end alike.
THIRD_PERSON: Final = _words("""
    adds answers applies asks becomes begins brings builds calls carries checks closes commits compares connects
    copies counts creates decides deletes does drops ends fails finds fires follows gets gives goes has holds is
    keeps leaves lets listens loads locks looks makes may moves must names needs opens passes puts raises reads
    records refuses removes renews reports returns says sees sends sets shows stands starts stops stores takes
    tells tries turns waits walks wakes works writes
""")
PARTICIPLES: Final = _words("""
    back beginning called committed done given kept made raised read_only sent taken told
""")
NOUNS: Final = _words("""
    answers calls checks counts ends fires leaves locks moves names needs reads reports starts stops
""")
NOUN_FOLLOWS: Final = _words("""
    of that by per and in for from on under
""")

_WORD = re.compile(r"[A-Za-z][\w'-]*")
_CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”")
_FINITE = (
    "is|are|was|were|has|have|had|may|must|can|cannot|could|will|would|does|did|do|needs|comes|came|goes|remains|"
    "runs|asks|takes|gets|finds|holds|looks|sees|knows|wants|stands|fails|waits|died|dies|belongs|failed|changed|follows"
)
# A clause whose subject is a pronoun, where the actor or the noun belongs.
_NAMELESS = re.compile(
    rf"\b(?:whoever|whatever(?! the\b)|whom|nobody|somebody)\b|\bwhat (?:{_FINITE})\b|"
    rf"(?:^|[.;:(—]\s*)who (?:{_FINITE})\b|"
    r"(?:^|[.;]\s+)(?:What|Who|Whoever|Whatever|Nobody|Somebody)\b",
    re.IGNORECASE,
)
_RIDDLES: Final = {
    "told": re.compile(r"\btold\b"),
    "stands": re.compile(r"\bstands?\b(?! for)|\bstanding\b"),
    "goes on": re.compile(r"\bgo(?:es)? on\b|\bwent on\b"),
    "at length": re.compile(r"\bat length\b"),
    "out": re.compile(r"\b(?:is|are|was|were|be|still) out\b(?! of)"),
}
# A sentence about the subject where the first line should act or name: "The login may not do this."
_SENTENCE = re.compile(r"^[^,;:.(—]*?\b(?:is|are|was|were|has|have|may|must|can|cannot|will|would|does|do)\b")
_SUBORDINATE = re.compile(
    r"\w \b(?:an?|the|this|it|each)\b|"  # "the version an instance is expected to have"
    r"\b(?:that|which|who|whose|where|when|if|as|while|until|before|after|unless|because|so|than|how|what|whether|why|of)\b"
)


class Docstring(NamedTuple):
    path: Path
    line: int
    name: str
    text: str


def docstrings(path: Path, nodes: Iterable[ast.AST] | None = None) -> Iterator[Docstring]:
    """Every docstring of a module but those of error classes: these are the sentences that users read."""
    errors = set(_names_of_errors())
    for node in nodes or ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.ClassDef) and errors & {node.name, *map(ast.unparse, node.bases)}:
            errors.add(node.name)
        elif text := ast.get_docstring(node):
            yield Docstring(path, node.body[0].lineno, getattr(node, "name", "module"), text)


@cache
def _names_of_errors() -> frozenset[str]:
    classes = ast.walk(ast.parse(ERRORS.read_text()))
    return frozenset(node.name for node in classes if isinstance(node, ast.ClassDef))


def complaints(text: str) -> list[str]:
    """Every break of the rule in one docstring."""
    plain = _CODE.sub("x", " ".join(text.split()))
    return [*_opening(plain), *_clauses(plain)]


def _opening(text: str) -> Iterator[str]:
    words = _WORD.findall(text)
    first = words[0].lower() if words and not text.startswith("x") else ""
    second = words[1].lower() if len(words) > 1 else ""
    if first in PRONOUNS:
        yield f"opens with the pronoun '{first}'"
    elif first in CONJUNCTIONS or first in PREPOSITIONS or first in PARTICIPLES:
        yield f"opens with '{first}'"
    elif first in THIRD_PERSON and not (first in NOUNS and second in NOUN_FOLLOWS):
        yield f"opens with '{first}', not with an imperative"
    elif (found := _SENTENCE.match(text)) and not _SUBORDINATE.search(found[0]):
        yield "opens with a sentence, neither an imperative nor a noun phrase"


def _clauses(text: str) -> Iterator[str]:
    if found := _NAMELESS.search(text):
        yield f"a clause without an actor: '{found[0].strip(' .;:,(—')}'"
    for word, pattern in _RIDDLES.items():
        if pattern.search(text):
            yield f"'{word}' where a noun or a verb of the field exists"


def package(path: Path, source: Path) -> str:
    """The name under which a module is counted: two folders at most, `.` for the top."""
    return "/".join(path.relative_to(source).parts[:-1][:2]) or "."
