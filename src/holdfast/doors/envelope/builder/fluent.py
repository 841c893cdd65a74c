"""The base of the builders: each verb answers a longer value; `build` raises all mistakes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from functools import wraps
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, cast

from holdfast.doors.durations import LONGEST, write_duration
from holdfast.doors.envelope.reading.problems import REMEDIES
from holdfast.doors.known_options import options_of, unknown_option
from holdfast.doors.yaml.reading import DEEPEST
from holdfast.graph.diagnostics import Diagnostic

P = ParamSpec("P")
R = TypeVar("R")

Names = str | Iterable[str]


def checked(method: Callable[P, R]) -> Callable[P, R]:
    """Refuse options the method does not have, together with all other mistakes, when the value is built."""
    known = options_of(method)

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        unknown = [option for option in options if option not in known]
        answer = cast(Any, method)(*args, **{option: options[option] for option in options if option in known})
        if unknown:
            value: Fluent = args[0] if answer is None else answer  # __init__ answers nothing
            is_new = method.__name__ == "__init__"
            name = args[1] if not is_new and len(args) > 1 and isinstance(args[1], str) else ""
            value.refuse_options(method.__name__, name, unknown, known)
        return answer

    return call


class Fluent:
    """A value that verbs make longer, without a change of the one they are called on."""

    prefix: ClassVar[str]  # of the codes of its problems
    lists: ClassVar[dict[str, str]]  # verb → the list of the written form that it adds to

    def __init__(self) -> None:
        self.problems: tuple[Diagnostic, ...] = ()

    def refuse_options(self, verb: str, name: str, unknown: Iterable[str], known: frozenset[str]) -> None:
        code = f"{self.prefix}_OPTION_UNKNOWN"
        owner = type(self).__name__ if verb == "__init__" else f"{verb}({name!r})" if name else f"{verb}()"
        for option in unknown:
            place = ".".join(part for part in (self.lists.get(verb, ""), name, option) if part)
            message = unknown_option(owner, option, known)
            found = Diagnostic(code=code, message=message, place=place, hint=REMEDIES[code])
            self.problems = (*self.problems, found)

    def complaining(self, code: str, message: str, place: str) -> Self:
        """Copy this value with one problem more."""
        found = Diagnostic(code=code, message=message, place=place, hint=REMEDIES[code])
        return self.longer(problems=(*self.problems, found))

    def longer(self, **changes: Any) -> Self:
        """Copy this value with other fields."""
        made = copy(self)
        for name, value in changes.items():
            setattr(made, name, value)
        return made


def entry(**fields: Any) -> dict[str, Any]:
    """Make an entry of the written form: names without a trailing `_`, and only values that were given."""
    return {key.removesuffix("_"): _data(value) for key, value in fields.items() if value is not None}


def names(given: Any) -> Any:
    """Make a list of several names; leave one name, and values that are none, as they are."""
    return given if isinstance(given, str) or not isinstance(given, Iterable) else list(given)  # pyright: ignore


def name_list(given: Any) -> Any:
    """Make a list of one name or several."""
    return [given] if isinstance(given, str) else names(given)


def span(seconds: Any) -> Any:
    """Write a number of seconds as a duration; leave durations, and values that are none, as they are."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return seconds
    return write_duration(seconds) if 0 <= seconds <= LONGEST else f"{seconds}s"


def _data(value: Any, depth: int = 0) -> Any:
    """Copy lists and mappings, so that a later change of the caller's own changes nothing here."""
    if depth > DEEPEST:  # refused when it is built
        return value
    if isinstance(value, dict):
        return {key: _data(item, depth + 1) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = cast(Iterable[Any], value)
        ordered = sorted(items, key=str) if isinstance(value, set | frozenset) else items
        return [_data(item, depth + 1) for item in ordered]
    return value
