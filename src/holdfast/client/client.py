"""Client: the verbs of an engine, spoken to a server over `/api/v1`.

    with Client("https://flows.example", api_key=KEY) as client:
        parcel = client.start("delivery", {"order": 17}, key="order-17")
        client.tasks.claim(task_id, by="ben")

What an engine would raise, a client raises.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self

import msgspec

from holdfast.client.activities import ClientActivities
from holdfast.client.connection import EVERYTHING, Connection, given, id_part, part, some_id_part, taken
from holdfast.client.consumers import ClientConsumers
from holdfast.client.contracts import ClientContracts
from holdfast.client.dead_letters import ClientDeadLetters
from holdfast.client.effects import ClientEffects
from holdfast.client.flows import ClientFlows
from holdfast.client.machines import ClientMachines, machine_path
from holdfast.client.notices import ClientNotices
from holdfast.client.tables import ClientTables
from holdfast.client.tasks import ClientTasks
from holdfast.core.model.status import TERMINAL
from holdfast.doors.registry import source_of
from holdfast.errors import NotFound
from holdfast.runtime.machines.triggers import TriggerResult
from holdfast.runtime.publishing import Publishable, Published
from holdfast.runtime.reads.search import InstanceFilter
from holdfast.runtime.reads.views import Page
from holdfast.store.machines import MachineInstance
from holdfast.store.queue.workers import WorkerProcess
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.store.reads.lifecycle import Lifecycle

TIMEOUT: Final = 60.0
LOOK_AGAIN: Final = 0.25
_AT_WORK: Final = (None, "retry", "receipt")  # `waiting_for` of an instance that continues by itself


class Client:
    """A server to act on, from code without an event loop.

    `api_key` names the actor to the server. Without one only a server in development listens: it believes `tenant` and
    `subject`, and `by` of a verb. `timeout` is the time for one answer, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        subject: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._server = Connection(url, api_key=api_key, tenant=tenant, subject=subject, timeout=timeout)
        self.flows = ClientFlows(self._server)
        self.tasks = ClientTasks(self._server)
        self.dead_letters = ClientDeadLetters(self._server)
        self.effects = ClientEffects(self._server)
        self.activities = ClientActivities(self._server)
        self.notices = ClientNotices(self._server)
        self.machines = ClientMachines(self._server)
        self.contracts = ClientContracts(self._server)
        self.tables = ClientTables(self._server)
        self.consumers = ClientConsumers(self._server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    # --- looking -------------------------------------------------------------------------------------------------

    def get(self, instance_id: str) -> Instance:
        return self._server.instance(self._server.get(f"/instances/{id_part(instance_id)}"))

    def find(self, filter: InstanceFilter, *, after: str | None = None, limit: int = 50) -> Page:
        """Read up to `limit` instances, fewer once a page is short; `next` of the page continues the search."""
        found, next = self._server.some("/instances", limit, after, _instances_asked(filter))
        return Page([self._server.instance(item) for item in found], next)

    def steps(self, instance_id: str, *, all: bool = False) -> list[Step]:
        found = self._server.pages(f"/instances/{id_part(instance_id)}/steps", EVERYTHING)
        steps = [taken(Step, item) for item in found]
        return steps if all else [step for step in steps if step.behaviour not in ("end", "control")]

    def events(self, instance_id: str) -> list[Event]:
        return [
            taken(Event, item) for item in self._server.pages(f"/instances/{id_part(instance_id)}/events", EVERYTHING)
        ]

    def lifecycle(self, instance_id: str, *, last: int | None = None) -> Lifecycle:
        """Read the lifecycle of a machine: `last` of its latest entries, 1,000 unless given, 10,000 at most."""
        return taken(Lifecycle, self._server.get(f"/instances/{id_part(instance_id)}/lifecycle", last=last))

    def workers(self, *, limit: int = 200) -> list[WorkerProcess]:
        """List the worker processes of the installation; the key needs the scope `operate`."""
        return [taken(WorkerProcess, item) for item in self._server.get("/workers")["items"][:limit]]

    def settle(self, instance_id: str, timeout: float | None = None) -> Instance:
        """Poll the instance until it rests or time is up, and return its last state."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get(instance_id)
            is_resting = found.status in TERMINAL or found.status in ("suspended", "dlq")
            if is_resting or (found.status == "running" and found.waiting_for not in _AT_WORK):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                return found
            time.sleep(LOOK_AGAIN)

    # --- starting ------------------------------------------------------------------------------------------------

    def publish_many(self, definitions: Iterable[Publishable], *, by: str | None = None) -> list[Published]:
        """Publish one after another: a file of several workflows is published whole, several files in turn."""
        return [self.publish(definition, by=by) for definition in definitions]

    def publish(self, definition: Publishable, *, by: str | None = None) -> Published:
        """Publish a workflow by its YAML, any other definition by its graph."""
        source = source_of(definition)
        sent = source.document()
        headers = {**self._server.person(by), "Content-Type": sent.media}
        query = {"file": sent.file[-200:]}
        done = self._server.send("POST", "/definitions", query=query, body=sent.body, headers=headers)
        published = [taken(Published, item) for item in done["published"]]
        # The text of a workflow may be a file with others in it.
        return next(one for one in published if (one.name, one.version) == (source.name, source.version))

    def start(
        self,
        flow: str,
        input: Any = None,
        *,
        key: str | None = None,
        version: int | None = None,
        business_key: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Instance:
        wish = given(flow=flow, input=input, version=version, business_key=business_key, attributes=attributes)
        return self._server.instance(self._server.act("/instances", wish, by, **given(**{"Idempotency-Key": key})))

    def advance(
        self,
        instance_id: str,
        event: str,
        input: Any = None,
        *,
        by: str,
        capabilities: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        if_version: int | None = None,
        comment: str | None = None,
    ) -> Instance:
        headers = {**self._server.person(by, capabilities or ()), **self._server.roles(roles)}
        headers |= {} if if_version is None else {"If-Match": f'"{if_version}"'}
        wish = given(event=event, input=input, comment=comment)
        self._server.send(
            "POST", f"/{id_part(instance_id)}/advance", body=wish, headers=headers, prefix="/ui/workflows"
        )
        return self.get(instance_id)

    def signal(
        self,
        instance_id: str,
        event: str,
        payload: Any = None,
        *,
        node: str | None = None,
        id: str | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        early: bool = True,
    ) -> Instance:
        headers = {**self._server.person(by, capabilities), **given(**{"Idempotency-Key": some_id_part(id)})}
        wish = given(event=event, payload=payload, node=node, early=None if early else False)
        return self._server.instance(
            self._server.post(f"/instances/{id_part(instance_id)}/signals", wish, headers=headers)
        )

    def signal_key(
        self, event: str, key: str, payload: Any = None, *, id: str | None = None, by: str | None = None
    ) -> str:
        headers = given(**{"Idempotency-Key": some_id_part(id)})
        return self._server.act("/events", given(event=event, key=key, payload=payload), by, **headers)["id"]

    # --- machines ------------------------------------------------------------------------------------------------

    def trigger(
        self,
        environment: str,
        definition: str,
        external_ref: str,
        event: str | int,
        payload: Any = None,
        *,
        request_id: str | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        expected: int | None = None,
        version: int | None = None,
        ack_required: bool = True,
        occurred_at: datetime | None = None,
    ) -> TriggerResult:
        """Send an event to the instance of a reference, which is made if it is not there yet."""
        wish = given(
            external_ref=external_ref, event=event, payload=payload, request_id=request_id, expected=expected,
            version=version, ack_required=ack_required, occurred_at=occurred_at,
        )  # fmt: skip
        headers = self._server.person(by, capabilities)
        path = f"{machine_path(environment, definition)}/triggers"
        return taken(TriggerResult, self._server.post(path, wish, headers=headers))

    def trigger_answer(
        self, environment: str, definition: str, external_ref: str, request_id: str
    ) -> TriggerResult | None:
        """Read the answer a trigger got under its request id; None as long as it has none."""
        path = f"{machine_path(environment, definition)}/triggers/{part(request_id)}"
        try:
            return taken(TriggerResult, self._server.get(path, external_ref=external_ref))
        except NotFound as unknown:
            if unknown.code != "TRIGGER_UNKNOWN":
                raise
            return None

    def machine(self, environment: str, definition: str, external_ref: str) -> MachineInstance:
        """Read the instance of a reference: its state, its last event, its open gates."""
        path = f"{machine_path(environment, definition)}/instance"
        return taken(MachineInstance, self._server.get(path, external_ref=external_ref))

    def ack(
        self,
        environment: str,
        consumer: str,
        ack: str,
        outcome: str,
        *,
        message: str | None = None,
        verdict: str | None = None,
        then: tuple[str | int, Any] | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
    ) -> TriggerResult | None:
        """Answer a fact: delivered, processed, failed, or retry after a delay or at a moment.

        `processed` may bring `then`, the next event; its answer is returned.
        """
        following = None if then is None else {"event": then[0], "payload": then[1]}
        wish = given(
            environment=environment, ack=ack, outcome=outcome, message=message, verdict=verdict, then=following,
            delay=delay, at=at,
        )  # fmt: skip
        headers = self._server.person(by, capabilities)
        told = self._server.post(f"/consumers/{part(consumer)}/acks", wish, headers=headers)
        return None if told["answer"] is None else taken(TriggerResult, told["answer"])

    # --- steering ------------------------------------------------------------------------------------------------

    def cancel(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._steer(instance_id, "cancel", by, reason=reason)

    def abort(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._steer(instance_id, "abort", by, reason=reason)

    def suspend(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._steer(instance_id, "pause", by, reason=reason)

    def resume(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._steer(instance_id, "resume", by, reason=reason)

    def rerun(
        self,
        instance_id: str,
        *,
        from_step: str,
        input: Any = None,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Instance:
        wish = given(from_step=from_step, input=input, token=token, reason=reason)
        path, headers = f"/instances/{id_part(instance_id)}/rerun", given(**{"Idempotency-Key": key})
        return self._server.instance(self._server.act(path, wish, by, **headers))

    def _steer(self, id: str, verb: str, by: str | None, **wish: Any) -> Instance:
        return self._server.instance(self._server.act(f"/instances/{id_part(id)}/{verb}", given(**wish), by))


def _instances_asked(filter: InstanceFilter) -> dict[str, Any]:
    """Write a filter as the query of a request."""
    asked = msgspec.structs.asdict(filter)
    del asked["attributes"]
    wanted = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in (filter.attributes or {}).items()]
    parent = None if filter.parent is None else some_id_part(str(filter.parent))
    moments = {name: value.isoformat() for name, value in asked.items() if isinstance(value, datetime)}
    subject = asked.pop("subject_id")
    return {**asked, **moments, "subject": subject, "attribute": wanted or None, "parent": parent}
