"""A server as a place to act on: the verbs of an engine, spoken over `/api/v1`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.cli.caller import EVERYTHING, given, id_part, part, some_id_part, taken
from holdfast.cli.desk import RemoteDesk
from holdfast.cli.written import graph_of
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.compiled import dump_compiled
from holdfast.compiler.graph import dump_graph, load_graph
from holdfast.core.status import TERMINAL
from holdfast.definitions.steps.model import Workflow
from holdfast.runtime.publishing import Publishable, Published
from holdfast.runtime.views import Page
from holdfast.store.flows import FlowDocument, FlowVersion
from holdfast.store.reads import Event, Instance, Step

LOOK_AGAIN: Final = 0.25
_AT_WORK: Final = (None, "retry", "receipt")  # what `waiting_for` says of an instance that goes on by itself


class Remote(RemoteDesk):
    def get(self, instance_id: str) -> Instance:
        return self._instance(self._http.get(f"/instances/{id_part(instance_id)}"))

    def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        business_key: str | None = None,
        subject_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        parent: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        found: list[Instance] = []
        wanted = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in (attributes or {}).items()] or None
        while True:
            page = self._http.get(
                "/instances", flow=flow, status=status, key=key, business_key=business_key,
                subject=subject_id, attribute=wanted, parent=some_id_part(parent),
                since=None if since is None else since.isoformat(), cursor=after, limit=min(limit - len(found), 200),
            )  # fmt: skip
            found += [self._instance(item) for item in page["items"]]
            after = page["next"]
            if after is None or len(found) >= limit:
                return Page(found, after)

    def steps(self, instance_id: str, *, all: bool = False) -> list[Step]:
        found = self._http.pages(f"/instances/{id_part(instance_id)}/steps", EVERYTHING)
        steps = [taken(Step, item) for item in found]
        return steps if all else [step for step in steps if step.behaviour not in ("end", "control")]

    def events(self, instance_id: str) -> list[Event]:
        return [
            taken(Event, item) for item in self._http.pages(f"/instances/{id_part(instance_id)}/events", EVERYTHING)
        ]

    def flows(self, name: str | None = None) -> list[FlowVersion]:
        path = "/definitions" if name is None else f"/definitions/{part(name)}/versions"
        return [taken(FlowVersion, item) for item in self._http.pages(path, EVERYTHING)]

    def flow(self, name: str, version: int | None = None) -> FlowDocument:
        path = f"/definitions/{part(name)}"
        found = self._http.get(path if version is None else f"{path}/versions/{version}")
        told = self._http.get(f"{path}/versions/{found['version']}/graph")
        compiled = compile_graph(load_graph(told["graph"]))
        return taken(FlowDocument, {**found, "compiled": dump_compiled(compiled), "hash": compiled.hash})

    def settle(self, instance_id: str, timeout: float | None = None) -> Instance:
        """Looked at now and then until it rests, as it is when time is up."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get(instance_id)
            is_resting = found.status in TERMINAL or found.status in ("suspended", "dlq")
            if is_resting or (found.status == "running" and found.waiting_for not in _AT_WORK):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                return found
            time.sleep(LOOK_AGAIN)

    # --- starting and steering -----------------------------------------------------------------------------------

    def publish_many(self, definitions: Iterable[Publishable], *, by: str | None = None) -> list[Published]:
        """One request each: a file of several workflows is published whole, several files one after another."""
        return [self.publish(definition, by=by) for definition in definitions]

    def publish(self, definition: Publishable, *, by: str | None = None) -> Published:
        """A workflow goes as the YAML it was written in, anything else as the graph it becomes."""
        if isinstance(definition, Workflow):
            body, media, file = definition.text.encode(), "application/yaml", definition.file or "body"
        else:
            graph = graph_of(definition)
            body, media, file = msgspec.json.encode(dump_graph(graph)), "application/json", graph.name
        headers = {**self._person(by), "Content-Type": media}
        done = self._http.send("POST", "/definitions", query={"file": file[-200:]}, body=body, headers=headers)
        published = [taken(Published, item) for item in done["published"]]
        if isinstance(definition, Workflow):  # its text may be a file with others in it
            return next(one for one in published if (one.name, one.version) == (definition.id, definition.version))
        return published[0]

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
        return self._instance(self._act("/instances", wish, by, **given(**{"Idempotency-Key": key})))

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
        headers = {**self._person(by, capabilities or ()), **self._roles(roles)}
        headers |= {} if if_version is None else {"If-Match": f'"{if_version}"'}
        wish = given(event=event, input=input, comment=comment)
        self._http.send("POST", f"/{id_part(instance_id)}/advance", body=wish, headers=headers, prefix="/ui/workflows")
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
    ) -> Instance:
        headers = {**self._person(by, capabilities), **given(**{"Idempotency-Key": some_id_part(id)})}
        wish = given(event=event, payload=payload, node=node)
        return self._instance(self._http.post(f"/instances/{id_part(instance_id)}/signals", wish, headers=headers))

    def signal_key(
        self, event: str, key: str, payload: Any = None, *, id: str | None = None, by: str | None = None
    ) -> str:
        headers = given(**{"Idempotency-Key": some_id_part(id)})
        return self._act("/events", given(event=event, key=key, payload=payload), by, **headers)["id"]

    def cancel(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._control(instance_id, "cancel", by, reason=reason)

    def abort(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._control(instance_id, "abort", by, reason=reason)

    def suspend(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._control(instance_id, "pause", by, reason=reason)

    def resume(self, instance_id: str, *, by: str | None = None, reason: str | None = None) -> Instance:
        return self._control(instance_id, "resume", by, reason=reason)

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
        return self._instance(self._act(path, wish, by, **headers))
