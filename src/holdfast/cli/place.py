"""Where a command acts: on the database of this machine, or with `--url` on a server through its API.

Both offer the same verbs with the same answers, so a command is written once and never asks which of them it has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from holdfast.errors import Refused
from holdfast.runtime.sync import SyncEngine

if TYPE_CHECKING:
    from holdfast.cli.remote import Remote

Place: TypeAlias = "SyncEngine | Remote"


class Where(NamedTuple):
    url: str | None = None
    api_key: str | None = None
    tenant: str | None = None
    subject: str | None = None


_WHERE: ContextVar[Where] = ContextVar("where", default=Where())  # noqa: B039 - a NamedTuple does not change

_PANEL: Final = "Where"
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="HOLDFAST_URL", rich_help_panel=_PANEL, help="A server to act on instead of the database."
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="HOLDFAST_API_KEY", rich_help_panel=_PANEL, help="The key to show the server."),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", rich_help_panel=_PANEL, help="The organisation; a server in development believes it."),
]
Subject = Annotated[
    str | None,
    typer.Option("--subject", rich_help_panel=_PANEL, help="Who asks; only a server in development believes it."),
]
_OPTIONS: Final = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
    for name, option in {"url": Url, "api_key": ApiKey, "tenant": Tenant, "subject": Subject}.items()
]


def anywhere(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where it acts; `place()` then is there."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def act(*, url: str | None, api_key: str | None, tenant: str | None, subject: str | None, **given: Any) -> None:
        token = _WHERE.set(Where(url or None, api_key or None, tenant or None, subject or None))
        try:
            command(**given)
        finally:
            _WHERE.reset(token)

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    vars(act)["__signature__"] = signature.replace(parameters=[*own, *_OPTIONS])
    act.__annotations__ = {each.name: each.annotation for each in (*own, *_OPTIONS)}
    return act


@contextmanager
def place() -> Generator[Place]:
    where = _WHERE.get()
    if where.url is None:
        with SyncEngine(org=where.tenant) as engine:
            yield engine
        return
    from holdfast.cli.remote import Remote  # only those who need it pay for an HTTP client

    with Remote(where.url, api_key=where.api_key, tenant=where.tenant, subject=where.subject) as remote:
        yield remote


def actor(by: str | None) -> str:
    """Who does it; "" where a server that is shown a key knows that itself."""
    where = _WHERE.get()
    if where.url is not None and where.api_key is not None:
        if by is not None:
            raise Refused(
                "Who does it is whoever the API key belongs to.",
                code="ACTOR_KNOWN",
                hint="Leave out --by, or act with a key of that person.",
            )
        return ""
    who = by or where.subject
    if who is None:
        raise typer.BadParameter("Missing option '--by': who does it stands in the audit trail.")
    return who
