"""The cost of a JSON Schema: the size of it held against one value, with every reference written out.

The walk knows no dialect. It counts every key and value of the schema, and the target of a reference once for each
use, so the figure is never too low for a schema whose references it can follow. No figure holds for a schema that
contains itself, that refers in a way that is not followed here, or that asks what the rest of it left unevaluated: that
evaluates the rest again, and again for each level of such questions. Then only a deadline helps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

UNBOUNDED: Final = 1 << 40
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})  # they count where they are referred to
_ENDLESS: Final = frozenset({"$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"})
_LOOKS_BACK: Final = re.compile(r"\(\?(?![:a-zA-Z])|\\[1-9k]")  # these are matched by trying: no linear time
_CLASS: Final = re.compile(r"\\[dDwWsSc]")  # each is rewritten in the whole pattern, so their number counts twice
_NAMED: Final = (r"\p", r"\P", r"\u")
_COUNT: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CHARACTER: Final = re.compile(r"\\.|.", re.DOTALL)
_PART: Final = re.compile(r"\\[pPu]\{[^}]*\}|\[\^?\]?(?:\\.|[^\]\\])*\]|" + _CHARACTER.pattern, re.DOTALL)
_TRYING: Final = 20_000
_EXTRA: Final = {"uniqueItems": 50, "multipleOf": 1_000}  # long division of long numbers
_DEEPEST: Final = 200  # references that lead to references


@dataclass(slots=True)
class Cost:
    weight: int = 0  # parts to hold against one value, references written out
    patterns: int = 0  # what the patterns come to, each counted once
    is_bounded: bool = True


def cost_of(schema: Any) -> Cost:
    found = Cost()
    found.weight = _Walk(schema, found).weight(schema, 0)
    return found


class _Walk:
    def __init__(self, root: Any, cost: Cost) -> None:
        self._root = root
        self._cost = cost
        self._done: dict[str, int] = {}
        self._under_way: set[str] = set()

    def weight(self, part: Any, depth: int) -> int:
        if isinstance(part, dict):
            return self._object(cast("dict[str, Any]", part), depth)
        if isinstance(part, list):
            return min(UNBOUNDED, 1 + sum(self.weight(item, depth) for item in cast("list[Any]", part)))
        return 1 + len(part) // 16 if isinstance(part, str) else 1

    def _object(self, part: dict[str, Any], depth: int) -> int:
        total = 1
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                total += self._target(value, depth)
            elif key == "$id" and part is not self._root:
                self._cost.is_bounded = False
            elif key not in _DEFINITIONS:
                total += self._member(key, value, depth)
        return min(UNBOUNDED, total)

    def _member(self, key: str, value: Any, depth: int) -> int:
        if key in _ENDLESS:
            self._cost.is_bounded = False
        if key == "pattern" and isinstance(value, str):
            return self._pattern(value)
        weight = self.weight(value, depth)
        if key == "patternProperties" and isinstance(value, dict):
            weight += sum(map(self._pattern, cast("dict[str, Any]", value)))
        return weight + _EXTRA.get(key, 0)

    def _pattern(self, pattern: str) -> int:
        size = written_out(pattern)
        size += len(_CLASS.findall(pattern)) ** 2
        self._cost.patterns = min(UNBOUNDED, self._cost.patterns + size)
        return size + (_TRYING if _LOOKS_BACK.search(pattern) else 0)

    def _target(self, reference: str, depth: int) -> int:
        if reference in self._done:
            return self._done[reference]
        target = _followed(self._root, reference)
        if reference in self._under_way or depth > _DEEPEST or target is None:
            self._cost.is_bounded = False
            return 1
        self._under_way.add(reference)
        self._done[reference] = found = self.weight(target, depth + 1)
        self._under_way.discard(reference)
        return found


def written_out(pattern: str) -> int:
    """Count the characters of a pattern with every repetition written out: `(ab{3}){2}` is `abbbabbb` in groups."""
    sizes, last, place = [0], 0, 0  # of the open groups, and of the part that a repetition would repeat
    parts = _PART
    while place < len(pattern):
        repetition = _COUNT.match(pattern, place)
        if repetition:
            times = max(1, int((repetition[2] or repetition[1])[:9]))
            sizes[-1], last = min(UNBOUNDED, sizes[-1] + last * (times - 1)), min(UNBOUNDED, last * times)
            place = repetition.end()
            continue
        part = parts.match(pattern, place)
        assert part is not None, "any character is a part"
        place = part.end()
        if part[0] == "[" or (part[0] in _NAMED and pattern.startswith("{", place)):
            parts = _CHARACTER  # a class that nothing closes: looking for an end again and again takes quadratic time
        if part[0] == "(":
            sizes.append(1)
            continue
        last = len(part[0]) + (sizes.pop() if part[0] == ")" and len(sizes) > 1 else 0)
        sizes[-1] = min(UNBOUNDED, sizes[-1] + last)
    return min(UNBOUNDED, sum(sizes))


def _followed(root: Any, reference: str) -> Any:
    """The target of a reference within the schema; None for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = cast("dict[str, Any]", found).get(name)
        elif isinstance(found, list) and name.isdigit() and int(name[:9]) < len(cast("list[Any]", found)):
            found = cast("list[Any]", found)[int(name)]
        else:
            return None
    return found
