"""The query of a request: only parameters that the route has, and only lists more than once.

A misspelt filter would otherwise be none, and the answer everything. The names are those of the route's own signature,
so a parameter cannot be read without being known here, nor known without being described.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.server.http.refusals import Invalid

MOST_GUESSES: Final = 5  # of one request: guessing takes its time
_LONGEST_NAME: Final = 80  # as much of a name as is compared and told
_LISTS: Final = (list, tuple, set, frozenset)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
QueryCheck = Callable[[Request], None]


class StrictRoute(APIRoute):
    """`APIRouter(route_class=StrictRoute)`: for routes of no tenant; `GatedRoute` is for all others."""

    def get_route_handler(self) -> Handler:
        handle, check = super().get_route_handler(), query_check(self)

        async def strict(request: Request) -> Response:
            check(request)
            return await handle(request)

        return strict


def query_check(route: APIRoute) -> QueryCheck:
    """Make the check that refuses a query that does not fit this route."""
    known = dict(_parameters(route.dependant))

    def check(request: Request) -> None:
        if not request.scope["query_string"]:
            return
        given = Counter(name for name, _ in request.query_params.multi_items())
        wrong = (name for name, times in given.items() if name not in known or (times > 1 and not known[name]))
        if misfits := tuple(_misfit(name, known) for name in islice(wrong, MOST_GUESSES)):
            first = misfits[0]
            raise Invalid(f"{first['place']}: {first['message']}", hint=_hint(known), errors=misfits)

    return check


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """The names of a route's parameters, and whether each is a list."""
    for field in dependant.query_params:
        yield field.alias, _is_list(field.field_info.annotation)
    for needed in dependant.dependencies:
        yield from _parameters(needed)


def _is_list(annotation: Any) -> bool:
    """Also one that may be left out: `list[str] | None`."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(map(_is_list, get_args(annotation)))
    return origin in _LISTS


def _misfit(name: str, known: dict[str, bool]) -> dict[str, str]:
    told = name[:_LONGEST_NAME]
    if name in known:
        return {"place": f"query.{told}", "message": "This parameter is there more than once."}
    similar = difflib.get_close_matches(told, known, n=1)
    meant = f" Did you mean {similar[0]}?" if similar else ""
    return {"place": f"query.{told}", "message": f"This route has no such parameter.{meant}"}


def _hint(known: dict[str, bool]) -> str:
    return f"The route takes {', '.join(sorted(known))}." if known else "The route takes no query."
