"""How each operation of the API is asked for what belongs to somebody else.

A recipe writes one request and takes every name, id, cursor and key in it from the wish. The same recipe with the same
luck but another source is the same request about other things: what another company has, or what nobody has.
"""

from __future__ import annotations

import json
import random
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from tenant_world import Company, absent_like

from holdfast.core.model.ack_handles import AckAddress, decode_ack, encode_ack

STATUS, ALL, NOTHING = "status", "all", "nothing"  # how much of two answers has to be the same
API: Final = "/api/v1"
ORDER: Final = {"n": 1}
WORDS: Final = string.ascii_lowercase + string.digits


@dataclass
class Call:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    media: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    same: str = ALL
    who: str | None = None  # None: anybody may try

    @property
    def target(self) -> str:
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")

    @property
    def content(self) -> bytes:
        if self.body is None:
            return b""
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


class Wish:
    """Where a recipe gets its names from: `luck` decides the shape of the request, `draws` the things in it."""

    def __init__(
        self, luck: random.Random, draws: random.Random, own: Company, other: Company, *, absent: bool
    ) -> None:
        self.luck = luck
        self._draws = draws
        self.own = own
        self._other = other
        self._absent = absent
        self.sent: list[str] = []

    def id(self, kind: str) -> str:
        """Mostly of the right kind; the id of a task where an instance is meant must not be found either."""
        kind = kind if self._draws.random() < 0.8 else self._draws.choice(sorted(self._other.ids))
        id = self._draws.choice(self._other.ids[kind])
        return self._note(absent_like(id, self._draws.getrandbits(48)) if self._absent else id)

    def name(self, kind: str) -> str:
        name = self._draws.choice(self._other.names[kind])
        return self._note(self._unlike(name) if self._absent else name)

    def ack(self) -> str:
        """A handle of the other company's, or one of a fact that there never was."""
        ack = self._draws.choice(self._other.acks)
        if self._absent:
            address = decode_ack(ack)
            ack = encode_ack(AckAddress(self._draws.randbytes(15) + address.instance[15:], address.at, address.fact))
        return self._note(ack)

    def cursor(self, operation: str) -> str:
        """One the other company was given for the same list, or one that was never given to anybody."""
        cursor = self._draws.choice(self._other.cursors[operation])
        if self._absent:
            raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            cursor = urlsafe_b64encode(self._draws.randbytes(8) + raw[8:]).rstrip(b"=").decode()
        return self._note(cursor)

    def sometimes(self, value: Callable[[], Any], chance: float = 0.5) -> Any:
        return value() if self.luck.random() < chance else None

    def _unlike(self, name: str) -> str:
        head, separator, tail = name.rpartition("=")
        return head + separator + tail[0] + "".join(self._draws.choices(WORDS, k=len(tail) - 1))

    def _note(self, value: str) -> str:
        self.sent.append(value)
        return value


Recipe = Callable[[Wish], Call]


def _on(method: str, path: str, kind: str, body: Callable[[Wish], Any] | None = None) -> Recipe:
    """A route about one thing: its id, and whatever else a change may carry."""

    def recipe(wish: Wish) -> Call:
        call = Call(method, path.format(wish.id(kind)))
        if method == "POST":
            call.body = None if body is None else body(wish)
            _mark_change(call, wish)
        else:
            _mark_look(call, wish)
        return call

    return recipe


def _mark_change(call: Call, wish: Wish) -> None:
    if wish.luck.random() < 0.3:
        call.headers["Idempotency-Key"] = wish.name("start_key")
    if wish.luck.random() < 0.3:
        call.headers["If-Match"] = wish.luck.choice(['"1"', '"2"', "*", '"3", "4"'])


def _mark_look(call: Call, wish: Wish) -> None:
    if wish.luck.random() < 0.2:
        call.headers["If-None-Match"] = wish.luck.choice(['"1"', '"2"', "*"])
    if wish.luck.random() < 0.2 and call.path.endswith("stream"):
        call.headers["Last-Event-ID"] = wish.luck.choice(["1", "1-1-1", "0-0-0"])


def _trail(part: str, operation: str) -> Recipe:
    def recipe(wish: Wish) -> Call:
        call = Call("GET", f"{API}/instances/{wish.id('instance')}/{part}", {"limit": "2"})
        if wish.luck.random() < 0.4:
            call.query["cursor"] = wish.cursor(operation)
        return call

    return recipe


def _activity(verb: str) -> Recipe:
    def recipe(wish: Wish) -> Call:
        return Call("POST", f"{API}/instances/{wish.id('instance')}/activities/{wish.id('activity')}/{verb}")

    return recipe


def _definition(suffix: str, media: str = "application/json") -> Recipe:
    def recipe(wish: Wish) -> Call:
        path = f"{API}/definitions/{quote(wish.name('flow'))}{suffix.format(wish.luck.choice([1, 1, 2]))}"
        return Call("GET", path, headers={"Accept": media})

    return recipe


def _list(path: str, operation: str, filters: dict[str, tuple[str, str]]) -> Recipe:
    """A list by one foreign filter or by a foreign cursor; `filters` say where each value comes from."""

    def recipe(wish: Wish) -> Call:
        call = Call("GET", path, {"limit": str(wish.luck.choice([1, 5, 200]))})
        chosen = wish.luck.choice([*filters, "cursor"])
        if chosen == "cursor":
            call.query["cursor"] = wish.cursor(operation)
        else:
            source, kind = filters[chosen]
            call.query[chosen] = wish.id(kind) if source == "id" else wish.name(kind)
        return call

    return recipe


def _plain(path: str, same: str = NOTHING) -> Recipe:
    return lambda wish: Call("GET", path, same=same)


def _publish(wish: Wish) -> Call:
    """Under the name of somebody else's flow, with other content: here the name is free. Only checked."""
    name = wish.name("flow")
    node = {"id": "end", "kind": "end"}
    if wish.luck.random() < 0.5:
        graph = {"name": name, "entry": "end", "nodes": [node], "edges": []}
        return Call("POST", f"{API}/definitions", {"dry_run": "true"}, graph, same=STATUS)
    yaml = f"workflows:\n  - {{id: {name}, version: 1, steps: [{{id: end, type: terminal}}]}}\n"
    return Call("POST", f"{API}/definitions", {"dry_run": "true"}, yaml, "application/yaml", same=STATUS)


def _start_instance(wish: Wish) -> Call:
    """Somebody else's flow, or a flow of one's own with a key that somebody else has used."""
    if wish.luck.random() < 0.5:
        call = Call("POST", f"{API}/instances", body={"flow": wish.name("flow"), "input": ORDER})
        _mark_change(call, wish)
        return call
    body, headers = {"flow": "orders", "input": ORDER}, {"Idempotency-Key": wish.name("start_key")}
    return Call("POST", f"{API}/instances", body=body, headers=headers, same=STATUS, who="clerk")


def _start_workflow(wish: Wish) -> Call:
    if wish.luck.random() < 0.5:
        call = Call("POST", f"/ui/workflows/{quote(wish.name('flow'))}/start", body=ORDER)
        _mark_change(call, wish)
        return call
    headers = {"Idempotency-Key": wish.name("start_key"), "Prefer": "respond-async"}
    path = f"/ui/workflows/{quote(wish.own.names['flow'][1])}/start"
    return Call("POST", path, body=ORDER, headers=headers, same=STATUS, who="clerk")


def _signal(wish: Wish) -> dict[str, Any]:
    node, token = wish.sometimes(lambda: wish.name("node")), wish.sometimes(lambda: "0@1", 0.2)
    return {"event": "confirmed", "payload": ORDER, "node": node, "token": token}


def _send_event(wish: Wish) -> Call:
    """For a key that somebody else waits with, or has used to send: here nobody does, and nobody learns who does."""
    body = {"event": "confirmed", "key": wish.name("business_key"), "payload": ORDER}
    headers = {"Idempotency-Key": wish.name("start_key")} if wish.luck.random() < 0.3 else {}
    return Call("POST", f"{API}/events", body=body, headers=headers, same=STATUS)


def _handing(wish: Wish) -> dict[str, Any]:
    return {"to": wish.name("subject"), "reason": "Because."}


def _why(wish: Wish) -> dict[str, Any] | None:
    return wish.sometimes(lambda: {"reason": "Because."})


def _machine(method: str, suffix: str = "", body: Callable[[Wish], Any] | None = None) -> Recipe:
    """A machine of the other company, by its names."""

    def recipe(wish: Wish) -> Call:
        environment = "prod" if wish.luck.random() < 0.5 else wish.name("environment")
        path = f"{API}/machines/{environment}/{wish.name('machine')}{suffix}"
        media = "text/plain" if suffix == "/chart" else "application/json"
        return Call(method, path, body=body and body(wish), headers={"Accept": media})

    return recipe


def _import_machine(wish: Wish) -> Call:
    """Under the name of somebody else's machine: here it is free. Or a policy for it. Only checked."""
    name = wish.name("machine")
    body: dict[str, Any] = {"policy": {"for": {"definition": name}}}
    if wish.luck.random() < 0.5:
        states = [{"name": "new", "is_initial": True}, {"name": "done", "is_final": True}]
        events, transitions = [{"code": 1, "name": "end"}], [{"from": "new", "event": 1, "to": "done"}]
        body = {"blueprint": {"name": name, "environment": "prod", "version": 1, "states": states, "events": events}}
        body["blueprint"]["transitions"] = transitions
    return Call("POST", f"{API}/machines", {"dry_run": "true"}, body, same=STATUS)


def _trigger(wish: Wish) -> Call:
    """Somebody else's machine, or one of one's own with a reference and a request id that somebody else has used."""
    if wish.luck.random() < 0.5:
        return _machine("POST", "/triggers", lambda wish: {"external_ref": wish.name("ref"), "event": "open"})(wish)
    key = wish.name("start_key")
    path = f"{API}/machines/prod/{wish.own.names['machine'][0]}/triggers"
    return Call("POST", path, body={"external_ref": key, "event": "open", "request_id": key}, same=STATUS)


def _trigger_answer(wish: Wish) -> Call:
    machine = wish.luck.choice([wish.own.names["machine"][0], wish.name("machine")])
    path = f"{API}/machines/prod/{machine}/triggers/{wish.name('request')}"
    return Call("GET", path, {"external_ref": wish.name("ref")})


def _machine_instance(wish: Wish) -> Call:
    machine = wish.luck.choice([wish.own.names["machine"][0], wish.name("machine")])
    return Call("GET", f"{API}/machines/prod/{machine}/instance", {"external_ref": wish.name("ref")})


def _past(wish: Wish) -> dict[str, Any]:
    return {"external_ref": wish.name("ref"), "events": [{"event": "open", "occurred_at": "2026-01-01T00:00:00Z"}]}


def _contract(method: str, suffix: str = "", body: Callable[[Wish], Any] | None = None) -> Recipe:
    """A contract of the other company, its draft, or its patches."""

    def recipe(wish: Wish) -> Call:
        path = f"{API}/contracts/{quote(wish.name('contract'))}{suffix}"
        media = "text/plain" if suffix.endswith("/mermaid") else "application/json"
        return Call(method, path, body=body and body(wish), headers={"Accept": media})

    return recipe


def _contract_diff(wish: Wish) -> Call:
    """In each form, of which the page has most to tell."""
    before, after = wish.luck.choice(["envelope", "1"]), wish.luck.choice(["1", "2", "draft"])
    media = wish.luck.choice(["application/json", "text/plain", "text/html"])
    query, headers = {"from": before, "to": after}, {"Accept": media}
    return Call("GET", f"{API}/contracts/{quote(wish.name('contract'))}/diff", query, headers=headers)


def _simulate_document(wish: Wish) -> Call:
    version = wish.luck.choice([None, 1, 2, "draft"])
    return _contract("POST", "/simulate", lambda _: {"document": {}, "version": version})(wish)


def _publish_contract(wish: Wish) -> Call:
    """Of a type that somebody else has a contract for: here it is free, and the contract is wrong."""
    body = {"contract": {"type": wish.name("contract"), "states": [{"name": "draft"}]}}
    return Call("POST", f"{API}/contracts", body=body, same=STATUS)


def _publish_table(wish: Wish) -> Call:
    """Of a name that somebody else has a table for: here it is free, and the table is wrong."""
    return Call("POST", f"{API}/rule-tables", body={"table": {"name": wish.name("table")}}, same=STATUS)


def _table(wish: Wish) -> Call:
    query = wish.luck.choice([{}, {"version": "1"}])
    return Call("GET", f"{API}/rule-tables/{quote(wish.name('table'))}", query)


def _save_draft(wish: Wish) -> Call:
    """Over somebody else's draft, which would show in it; a patch without its contract is wrong here."""
    return _contract("PUT", "/draft", lambda _: {"patch": {"contract": "another", "envelope": 1}})(wish)


def _consumer(verb: str, **more: Any) -> Recipe:
    """A consumer of the other company, by its names."""

    def recipe(wish: Wish) -> Call:
        path = f"{API}/consumers/{wish.name('consumer')}{verb}"
        if verb in ("", "/stream", "/deliveries"):
            return Call("GET", path, {"environment": "prod"})
        return Call("POST", path, body={"environment": "prod", **more})

    return recipe


def _register(wish: Wish) -> Call:
    """A name that somebody else has given a consumer: here it is free."""
    body = {"environment": "prod", "name": wish.name("new_consumer"), "definitions": ["nothing"]}
    return Call("POST", f"{API}/consumers", body=body, same=STATUS, who="operator")


def _acknowledge(wish: Wish) -> Call:
    """A fact of the other company, as a consumer of one's own or of theirs."""
    consumer = wish.luck.choice([wish.own.names["consumer"][0], wish.name("consumer")])
    body = {"environment": "prod", "ack": wish.ack()}
    body["outcome"] = wish.luck.choice(["delivered", "processed", "failed", "retry"])
    if body["outcome"] == "processed" and wish.luck.random() < 0.5:
        body["then"] = {"event": "remind"}
    return Call("POST", f"{API}/consumers/{consumer}/acks", body=body)


def _consumer_deliveries(wish: Wish) -> Call:
    if wish.luck.random() < 0.5:
        return _consumer("/deliveries")(wish)
    path = f"{API}/consumers/{wish.own.names['consumer'][0]}/deliveries"
    query = {"environment": "prod", "limit": "1", "cursor": wish.cursor("list_consumer_deliveries")}
    return Call("GET", path, query)


_INSTANCE, _TASK, _LETTER = f"{API}/instances/{{}}", f"{API}/tasks/{{}}", f"{API}/dead-letters/{{}}"
_WORKFLOW: Final = "/ui/workflows/{}"

RECIPES: Final[dict[str, Recipe]] = {
    "publish_definitions": _publish,
    "list_definitions": _list(f"{API}/definitions", "list_definitions", {}),
    "get_newest_definition": _definition(""),
    "list_definition_versions": _definition("/versions"),
    "get_definition": _definition("/versions/{}"),
    "get_definition_graph": _definition("/versions/{}/graph"),
    "get_definition_mermaid": _definition("/versions/{}/mermaid", "text/plain"),
    "list_instances": _list(
        f"{API}/instances",
        "list_instances",
        {
            "flow": ("name", "flow"),
            "key": ("name", "key"),
            "business_key": ("name", "business_key"),
            "subject": ("name", "subject"),
            "attribute": ("name", "attribute"),
        },
    ),
    "start_instance": _start_instance,
    "get_instance": _on("GET", _INSTANCE, "instance"),
    "signal_instance": _on("POST", f"{_INSTANCE}/signals", "instance", _signal),
    "send_event": _send_event,
    "list_steps": _trail("steps", "list_steps"),
    "list_events": _trail("events", "list_events"),
    "stream_events": _on("GET", f"{_INSTANCE}/stream", "instance"),
    "get_timeline": _on("GET", f"{_INSTANCE}/timeline", "instance"),
    "list_instance_effects": _on("GET", f"{_INSTANCE}/effects", "instance"),
    "cancel_instance": _on("POST", f"{_INSTANCE}/cancel", "instance", _why),
    "abort_instance": _on("POST", f"{_INSTANCE}/abort", "instance", _why),
    "pause_instance": _on("POST", f"{_INSTANCE}/pause", "instance", _why),
    "resume_instance": _on("POST", f"{_INSTANCE}/resume", "instance"),
    "rerun_instance": _on("POST", f"{_INSTANCE}/rerun", "instance", lambda wish: {"from_step": wish.name("node")}),
    "requeue_instance": _on("POST", f"{_INSTANCE}/requeue", "instance", _why),
    "get_lifecycle": _on("GET", f"{_INSTANCE}/lifecycle", "instance"),
    "list_activities": _trail("activities", "list_activities"),
    "write_activity": _on(
        "POST", f"{_INSTANCE}/activities", "instance", lambda wish: {"name": "Check", "status": wish.name("node")}
    ),
    "freeze_activity": _activity("freeze"),
    "unfreeze_activity": _activity("unfreeze"),
    "list_notices": _list(
        f"{API}/notices", "list_notices", {"instance": ("id", "instance"), "consumer": ("name", "subject")}
    ),
    "stream_notices": lambda wish: Call("GET", f"{API}/notices/stream", {"instance": wish.id("instance")}),
    "publish_contract": _publish_contract,
    "list_contracts": _list(f"{API}/contracts", "list_contracts", {}),
    "publish_rule_table": _publish_table,
    "list_rule_tables": _list(f"{API}/rule-tables", "list_rule_tables", {}),
    "get_rule_table": _table,
    "get_newest_contract": _contract("GET"),
    "list_contract_versions": _contract("GET", "/versions"),
    "get_contract": _contract("GET", "/versions/1"),
    "get_contract_envelope": _contract("GET", "/versions/1/envelope"),
    "get_contract_mermaid": _contract("GET", "/versions/1/mermaid"),
    "get_effective_graph": _contract("GET", "/graph"),
    "get_effective_mermaid": _contract("GET", "/mermaid"),
    "diff_contract": _contract_diff,
    "simulate_document": _simulate_document,
    "list_contract_events": _contract("GET", "/events"),
    "save_patch_draft": _save_draft,
    "get_patch_draft": _contract("GET", "/draft"),
    "drop_patch_draft": _contract("DELETE", "/draft"),
    "check_patch": _contract("POST", "/draft/check", lambda _: {}),
    "publish_patch": _contract("POST", "/draft/publish", lambda _: {}),
    "list_patches": _contract("GET", "/patches"),
    "get_patch": _contract("GET", "/patches/1"),
    "restore_patch": _contract("POST", "/patches/1/restore", lambda _: {}),
    "archive_patch": _contract("POST", "/patches/1/archive", lambda _: {}),
    "rebase_patch": _contract("POST", "/rebase", lambda _: {}),
    "import_machine": _import_machine,
    "list_machines": _list(f"{API}/machines", "list_machines", {"environment": ("name", "environment")}),
    "get_machine": _machine("GET"),
    "get_machine_chart": _machine("GET", "/chart"),
    "simulate_machine": _machine("POST", "/simulate", lambda wish: {"events": ["open"]}),
    "trigger_machine": _trigger,
    "get_trigger_answer": _trigger_answer,
    "get_machine_instance": _machine_instance,
    "backfill_machine": _machine("POST", "/backfill", _past),
    "register_consumer": _register,
    "list_consumers": _list(f"{API}/consumers", "list_consumers", {"environment": ("name", "environment")}),
    "get_consumer": _consumer(""),
    "beat_consumer": _consumer("/beat"),
    "receive_facts": _consumer("/receive", wait=0.01),
    "acknowledge_fact": _acknowledge,
    "replay_consumer": _consumer("/replay", since="2026-01-01T00:00:00Z"),
    "remove_consumer": _consumer("/remove"),
    "stream_facts": _consumer("/stream"),
    "list_consumer_deliveries": _consumer_deliveries,
    "list_deliveries": _trail("deliveries", "list_deliveries"),
    "list_tasks": _list(
        f"{API}/tasks",
        "list_tasks",
        {"instance": ("id", "instance"), "role": ("name", "role"), "assignee": ("name", "subject")},
    ),
    "get_task": _on("GET", _TASK, "task"),
    "list_task_events": _on("GET", f"{_TASK}/events", "task"),
    "claim_task": _on("POST", f"{_TASK}/claim", "task"),
    "release_task": _on("POST", f"{_TASK}/release", "task"),
    "assign_task": _on("POST", f"{_TASK}/assign", "task", _handing),
    "delegate_task": _on("POST", f"{_TASK}/delegate", "task", _handing),
    "decide_task": _on("POST", f"{_TASK}/decide", "task", lambda wish: {"decision": "confirmed", "data": ORDER}),
    "list_dead_letters": _list(f"{API}/dead-letters", "list_dead_letters", {"instance": ("id", "instance")}),
    "get_dead_letter": _on("GET", _LETTER, "letter"),
    "requeue_dead_letters": lambda wish: Call(
        "POST", f"{API}/dead-letters/requeue", body={"ids": [wish.id("letter")], "reason": "Because."}
    ),
    "requeue_dead_letter": _on("POST", f"{_LETTER}/requeue", "letter", lambda wish: {"input": ORDER}),
    "discard_dead_letter": _on("POST", f"{_LETTER}/discard", "letter", _why),
    "list_effects": _list(f"{API}/effects", "list_effects", {"flow": ("name", "flow")}),
    "get_effect": _on("GET", f"{API}/effects/{{}}", "effect"),
    "replay_effect": _on("POST", f"{API}/effects/{{}}/replay", "effect", _why),
    "list_workers": _plain(f"{API}/workers"),
    "get_statistics": lambda wish: Call("GET", f"{API}/statistics", {"flow": wish.name("flow")}),
    "start_workflow": _start_workflow,
    "advance_workflow": _on("POST", f"{_WORKFLOW}/advance", "instance", lambda wish: {"event": "approved"}),
    "get_workflow": _on("GET", _WORKFLOW, "instance"),
    "cancel_workflow": _on("POST", f"{_WORKFLOW}/cancel", "instance", _why),
    "list_workflows": _list(
        "/ui/workflows", "list_workflows", {"workflow_id": ("name", "flow"), "subject_id": ("name", "subject")}
    ),
    "stream_workflow": _on("GET", f"{_WORKFLOW}/events/stream", "instance"),
    "health_live": _plain("/health/live"),
    "health_ready": _plain("/health/ready"),
    "metrics": _plain("/metrics"),
}
