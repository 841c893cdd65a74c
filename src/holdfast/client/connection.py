"""Connection: name the actor, and turn answers of a server into the values an engine would have returned.

The API key names the actor. Without a key only a server in development listens; it believes the headers, where `by` of
a verb is the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from holdfast.client.transport import Transport
from holdfast.errors import HoldfastError
from holdfast.runtime.validation import take_id
from holdfast.store.reads.instances import Instance
from holdfast.store.tasks import Task

T = TypeVar("T")
EVERYTHING: Final = 100_000  # of one instance, or of one list


class Connection(Transport):
    """A transport with the identity of its user; all facets of a client share one."""

    def __init__(
        self, url: str, *, api_key: str | None, tenant: str | None, subject: str | None, timeout: float
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if api_key is None:
            said = {"X-Holdfast-Tenant": tenant, "X-Holdfast-Subject": subject}
            headers |= {name: value for name, value in said.items() if value}
        self._keyed = api_key is not None
        self._org = tenant or ""
        super().__init__(url, headers, timeout)

    def person(self, by: str | None, capabilities: Sequence[str] = ()) -> dict[str, str]:
        """Name the actor, for a server that believes it; capabilities only when some are named, else it grants all."""
        if self._keyed:
            return {}
        said = {"X-Holdfast-Subject": by or None, "X-Holdfast-Capabilities": ",".join(capabilities) or None}
        return {name: value for name, value in said.items() if value}

    def roles(self, roles: Sequence[str] | None) -> dict[str, str]:
        return {"X-Holdfast-Roles": ",".join(roles)} if roles and not self._keyed else {}

    def act(self, path: str, wish: Any, by: str | None, **headers: str) -> Any:
        return self.post(path, wish, headers={**self.person(by), **headers})

    def instance(self, item: dict[str, Any]) -> Instance:
        return taken(Instance, {"org": self._org, **item})

    def task(self, item: dict[str, Any]) -> Task:
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
    """Write an id for a path, and refuse a text that is no id, as an engine would."""
    return str(UUID(bytes=take_id(id)))


def some_id_part(id: str | None) -> str | None:
    return None if id is None else id_part(id)


def is_id(text: str | None) -> bool:
    try:
        UUID(text or "")
    except ValueError:
        return False
    return True


def part(text: str) -> str:
    return quote(text, safe="")
