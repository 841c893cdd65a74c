"""Consumers of a server: register them, take their facts, see how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.client.connection import EVERYTHING, Connection, given, id_part, part, taken
from holdfast.consumer.events import Event
from holdfast.errors import Refused
from holdfast.runtime.consumers.registering import IN_FLIGHT, NOW, Since
from holdfast.runtime.engine.consuming import DeliveryPage, Replay
from holdfast.store.consumers import ConsumerState
from holdfast.store.deliveries import Delivery

ConsumerStates = list[ConsumerState]
Events = list[Event]


class ClientConsumers:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def register(
        self,
        env: str,
        name: str,
        *,
        way: Literal["pull", "push"] = "pull",
        target: Mapping[str, Any] | None = None,
        definitions: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        events: Iterable[str | int] | None = None,
        hooks: Iterable[str] | None = None,
        transitions: bool = True,
        takes_hooks: bool = True,
        since: Since = NOW,
        ttl: float | None = None,
        max_attempts: int | None = None,
        in_flight: int = IN_FLIGHT,
        critical: bool = True,
        by: str | None = None,
    ) -> ConsumerState:
        """Register a consumer that pulls its facts, or that is pushed to; again changes its settings.

        It belongs to the owner of the key. `since` counts for the first registration, and for one after a removal.
        """
        filters = {"definitions": definitions, "states": states, "events": events, "hooks": hooks}
        wish = given(
            environment=env, name=name, way=way, target=target, transitions=transitions, takes_hooks=takes_hooks,
            since=since, ttl=ttl, max_attempts=max_attempts, in_flight=in_flight, critical=critical,
        )  # fmt: skip
        wish |= {name: _listed(names) for name, names in filters.items() if names is not None}
        return taken(ConsumerState, self._server.act("/consumers", wish, by))

    def list(self, env: str | None = None, *, limit: int = EVERYTHING) -> ConsumerStates:
        """List the consumers of the key's owner, or all for an operator, each with its lag."""
        return [taken(ConsumerState, item) for item in self._server.pages("/consumers", limit, environment=env)]

    def get(self, env: str, name: str) -> ConsumerState:
        """Read one consumer with its lag."""
        return taken(ConsumerState, self._server.get(f"/consumers/{part(name)}", environment=env))

    def remove(self, env: str, name: str, *, by: str | None = None) -> None:
        """Remove a consumer; its open deliveries end as abandoned."""
        self._server.act(f"/consumers/{part(name)}/remove", {"environment": env}, by)

    def replay(self, env: str, name: str, *, since: datetime, dry_run: bool = False, by: str | None = None) -> Replay:
        """Give a consumer all its facts again from a moment on, in order."""
        wish = {"environment": env, "since": since, "dry_run": dry_run}
        return taken(Replay, self._server.act(f"/consumers/{part(name)}/replay", wish, by))

    def beat(self, env: str, name: str, *, by: str | None = None) -> None:
        """Tell that a consumer is alive; polls tell by themselves."""
        self._server.act(f"/consumers/{part(name)}/beat", {"environment": env}, by)

    def receive(self, env: str, consumer: str, *, most: int = 50, wait: float = 0.0, by: str | None = None) -> Events:
        """Take due facts; without any, wait for them for so many seconds. Answer each with `client.ack`."""
        wish = {"environment": env, "most": most, "wait": wait}
        found = self._server.poll(f"/consumers/{part(consumer)}/receive", wish, wait, self._server.person(by))
        return [
            Event(
                msgspec.json.encode(one["body"]), one["ack"], environment=env, consumer=consumer,
                attempt=one["attempt"], max_attempts=one["max_attempts"],
            )
            for one in found["events"]
        ]  # fmt: skip

    def deliveries(
        self,
        *,
        instance: str | None = None,
        consumer: tuple[str, str] | None = None,
        closed: bool = False,
        after: str | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """List facts that are open for a consumer (environment and name), or those of an instance; oldest first.

        Of an instance, `closed` lists those that are over, too. `after` is the `next` of the page before.
        """
        if (instance is None) == (consumer is None):
            raise Refused(
                "Deliveries are listed by instance or by consumer.", code="FILTER_MISSING", hint="Name one of them."
            )
        if consumer is not None:
            env, name = consumer
            path, query = f"/consumers/{part(name)}/deliveries", {"environment": env}
        else:
            path, query = f"/instances/{id_part(instance or '')}/deliveries", {"closed": closed}
        found, next = self._server.some(path, limit, after, query)
        return DeliveryPage([taken(Delivery, item) for item in found], next)


def _listed(names: Iterable[str | int]) -> list[str]:
    return [names] if isinstance(names, str) else [str(name) for name in names]
