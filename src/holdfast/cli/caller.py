"""How a server is spoken to: who asks, and what comes back as the values an engine would have answered.

Who acts is whoever the API key belongs to. Without a key only a server in development listens, which believes what the
headers say: there `by` of a verb is the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from holdfast.cli.transport import Transport
from holdfast.errors import HoldfastError
from holdfast.runtime.edge import take_id
from holdfast.store.reads import Instance
from holdfast.store.tasks import Task

T = TypeVar("T")
EVERYTHING: Final = 100_000  # of one instance, or of one list


class Caller:
    def __init__(self, url: str, *, api_key: str | None, tenant: str | None, subject: str | None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if api_key is None:
            said = {"X-Holdfast-Tenant": tenant, "X-Holdfast-Subject": subject}
            headers |= {name: value for name, value in said.items() if value}
        self._keyed = api_key is not None
        self._org = tenant or ""
        self._http = Transport(url, headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _person(self, by: str | None, capabilities: Sequence[str] = ()) -> dict[str, str]:
        """Who acts, for a server that believes it; capabilities only when some are named, else it grants all."""
        if self._keyed:
            return {}
        said = {"X-Holdfast-Subject": by or None, "X-Holdfast-Capabilities": ",".join(capabilities) or None}
        return {name: value for name, value in said.items() if value}

    def _roles(self, roles: Sequence[str] | None) -> dict[str, str]:
        return {"X-Holdfast-Roles": ",".join(roles)} if roles and not self._keyed else {}

    def _act(self, path: str, wish: Any, by: str | None, **headers: str) -> Any:
        return self._http.post(path, wish, headers={**self._person(by), **headers})

    def _control(self, id: str, verb: str, by: str | None, **wish: Any) -> Instance:
        return self._instance(self._act(f"/instances/{id_part(id)}/{verb}", given(**wish), by))

    def _instance(self, item: dict[str, Any]) -> Instance:
        return taken(Instance, {"org": self._org, **item})

    def _task(self, item: dict[str, Any]) -> Task:
        return taken(Task, {"org": self._org, **item})


def taken(kind: type[T], item: Any) -> T:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as misfit:
        raise HoldfastError(
            f"The server answers in a form this version does not know: {misfit}.",
            code="SERVER_STRANGE",
            hint="Use the `holdfast` of the server's own version.",
        ) from None


def given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def id_part(id: str) -> str:
    """An id in a path; what is none is refused as an engine would."""
    return str(UUID(bytes=take_id(id)))


def some_id_part(id: str | None) -> str | None:
    return None if id is None else id_part(id)


def part(text: str) -> str:
    return quote(text, safe="")
