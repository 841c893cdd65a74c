"""Activities of a server: what applications report of their work in the states of machines."""

from __future__ import annotations

from typing import Any

from holdfast.client.connection import EVERYTHING, Connection, given, id_part, taken
from holdfast.runtime.machines.activities import PRESENT, Entry
from holdfast.store.activities import Activity

Activities = list[Activity]


class ClientActivities:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def of(self, instance_id: str, *, limit: int = EVERYTHING) -> Activities:
        """List the activities of an instance, oldest first."""
        found = self._server.pages(f"/instances/{id_part(instance_id)}/activities", limit)
        return [taken(Activity, item) for item in found]

    def write(
        self,
        instance_id: str,
        name: str,
        *,
        status: str,
        by: str | None = None,
        entry: Entry = PRESENT,
        data: Any = None,
    ) -> Activity:
        """Write the status of some work, over the one before of the same entry, name and actor."""
        wish = given(name=name, status=status, entry=entry, data=data)
        return taken(Activity, self._server.act(f"/instances/{id_part(instance_id)}/activities", wish, by))

    def freeze(self, instance_id: str, activity_id: str, *, by: str | None = None) -> Activity:
        return self._change(instance_id, activity_id, "freeze", by)

    def unfreeze(self, instance_id: str, activity_id: str, *, by: str | None = None) -> Activity:
        return self._change(instance_id, activity_id, "unfreeze", by)

    def _change(self, instance_id: str, activity_id: str, verb: str, by: str | None) -> Activity:
        path = f"/instances/{id_part(instance_id)}/activities/{id_part(activity_id)}/{verb}"
        return taken(Activity, self._server.act(path, None, by))
