"""Refuse options that a value does not have, with the word to write instead of an old or misspelt one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from holdfast.doors.known_options import options_of, unknown_option
from holdfast.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def only_known_options(value: type[T]) -> type[T]:
    """Make the class refuse unknown options with a DefinitionError that names the new word of an old one."""
    value.__init__ = _refusing_others(value.__init__, value.__name__)
    return value


def _refusing_others(init: Callable[P, R], name: str) -> Callable[P, R]:
    known = options_of(init)

    @wraps(init)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for option in options:
            if option not in known:
                raise DefinitionError(
                    unknown_option(f"{name}()", option, known),
                    code="STEP_OPTION_INVALID",
                    hint="`holdfast docs sagas` lists what each option takes.",
                    place=f"{name.lower()}.{option}",
                )
        return init(*args, **options)

    return checked
