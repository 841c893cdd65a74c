"""The builders of patches: an organisation's way of working, within the slots of a contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from msgspec.structs import replace

from holdfast.doors.envelope.builder.fluent import Fluent, Names, checked, entry, name_list, span
from holdfast.doors.envelope.model import PatchDefinition, RunAs, Window
from holdfast.doors.envelope.reading.format import NODE_KINDS
from holdfast.doors.envelope.reading.load import require_patch

Seconds = float | str  # a number of seconds, or a duration such as "2d"
Expressions = Mapping[str, Any]  # name → expression


class Fill(Fluent):
    """The steps that fill one slot: `Fill().approval("boss", role="manager").edge("in", "boss")`.

    The ports `in`, `out` and `rejected` are where they meet the contract. Every node takes `name` (what people see),
    `about`, and a stricter `window`."""

    prefix: ClassVar[str] = "PATCH"
    lists: ClassVar[dict[str, str]] = {"edge": "edges", **dict.fromkeys(NODE_KINDS, "nodes")}

    @checked
    def __init__(
        self,
        *,
        window: Window | None = None,
        entry_mode: Literal["serial", "branch"] | None = None,
        exit_mode: Literal["single", "join"] | None = None,
    ) -> None:
        """Begin with no steps. The window is stricter than the slot's own; the modes are checked against the edges."""
        super().__init__()
        self._head = entry(window=window, entry_mode=entry_mode, exit_mode=exit_mode)
        self._nodes: tuple[dict[str, Any], ...] = ()
        self._edges: tuple[dict[str, Any], ...] = ()

    @checked
    def condition(
        self, id: str, *, name: str | None = None, about: str | None = None, window: Window | None = None
    ) -> Self:
        """Choose one of the edges by their `when`."""
        return self._node("condition", id, name, about, window)

    @checked
    def split(
        self, id: str, *, name: str | None = None, about: str | None = None, window: Window | None = None
    ) -> Self:
        """Go along all edges at once; a join brings the branches together."""
        return self._node("split", id, name, about, window)

    @checked
    def join(
        self,
        id: str,
        mode: Literal["all", "any"] = "all",
        *,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Go on when all branches of the split are done, or with the first one."""
        return self._node("join", id, name, about, window, mode=mode)

    @checked
    def script(
        self,
        id: str,
        sets: Expressions,
        *,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Set values of the context: name → expression."""
        return self._node("script", id, name, about, window, sets=sets)

    @checked
    def rule(
        self,
        id: str,
        table: str,
        table_version: int | None = None,
        *,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Ask a decision table; without a version the newest one of the time of compiling."""
        return self._node("rule", id, name, about, window, table=table, table_version=table_version)

    @checked
    def action(
        self,
        id: str,
        action: str,
        *,
        payload: Expressions | None = None,
        run_as: RunAs | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Call an action of the contract."""
        return self._node("action", id, name, about, window, action=action, payload=payload, run_as=run_as)

    @checked
    def approval(
        self,
        id: str,
        *,
        user: str | None = None,
        role: str | None = None,
        expression: str | None = None,
        form: Mapping[str, Any] | None = None,
        due: Seconds | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Ask a user, a holder of a role, or the person that an expression gives.

        Its edges are on `approved` and `rejected`; without one on `rejected` a rejection goes to the port."""
        approvers = entry(user=user, role=role, expression=expression)
        return self._node("approval", id, name, about, window, approvers=approvers, form=form, due=span(due))

    @checked
    def wait_timer(
        self,
        id: str,
        delay: Seconds | None = None,
        *,
        until: str | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Wait for a time, until the moment that an expression gives, or until the next match of a cron line."""
        return self._node(
            "wait_timer", id, name, about, window, delay=span(delay), until=until, cron=cron, timezone=timezone
        )

    @checked
    def wait_event(
        self,
        id: str,
        event: str,
        *,
        key: str | None = None,
        deadline: Seconds | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Wait for an event; `key` is an expression whose value addresses it from outside."""
        return self._node("wait_event", id, name, about, window, event=event, key=key, deadline=span(deadline))

    @checked
    def webhook_out(
        self,
        id: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
        payload: Expressions | None = None,
        awaits: bool = False,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Send the payload to a URL, signed with the secret of that name. With `awaits` it waits for the receipt."""
        return self._node(
            "webhook_out", id, name, about, window,
            url=url, headers=headers, secret=secret, payload=payload, awaits=awaits or None,
        )  # fmt: skip

    @checked
    def notification(
        self,
        id: str,
        channel: str,
        *,
        to: str | None = None,
        subject: str | None = None,
        text: str | None = None,
        payload: Expressions | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Notify a person at best effort: by `mail`, in the `log`, or by another kind of effect."""
        return self._node(
            "notification", id, name, about, window,
            channel=channel, to=to, subject=subject, text=text, payload=payload,
        )  # fmt: skip

    @checked
    def sub_flow(
        self,
        id: str,
        flow: str,
        flow_version: int | None = None,
        *,
        payload: Expressions | None = None,
        deadline: Seconds | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Start another flow, by default its newest version, and wait for its end."""
        return self._node(
            "sub_flow", id, name, about, window,
            flow=flow, flow_version=flow_version, payload=payload, deadline=span(deadline),
        )  # fmt: skip

    @checked
    def policy_gate(
        self,
        id: str,
        *,
        capability: str | None = None,
        when: str | None = None,
        name: str | None = None,
        about: str | None = None,
        window: Window | None = None,
    ) -> Self:
        """Let pass only with the capability, and if the expression holds."""
        return self._node("policy_gate", id, name, about, window, capability=capability, when=when)

    @checked
    def edge(
        self,
        source: Names,
        target: Names,
        *,
        on: str | None = None,
        when: str | None = None,
        priority: int | None = None,
        label: str | None = None,
    ) -> Self:
        """Lead from one node to another, from several to one, or from one to several.

        Of the edges on one event those with `when` are tried first, by priority; the one without is the default."""
        edge = entry(from_=source, to=target, on=on, when=when, priority=priority, label=label)
        return self.longer(_edges=(*self._edges, edge))

    @property
    def data(self) -> dict[str, Any]:
        """The written form."""
        return {**self._head, "nodes": list(self._nodes), "edges": list(self._edges)}

    def _node(
        self, kind: str, id: str, name: str | None, about: str | None, window: Window | None, **fields: Any
    ) -> Self:
        node = entry(id=id, kind=kind, name=name, about=about, window=window, **fields)
        return self.longer(_nodes=(*self._nodes, node))


class Patch(Fluent):
    """`Patch("invoice", envelope=1).slot("submitted_to_approved", Fill()…).build()`.

    Mistakes are gathered and raised together by `build`."""

    prefix: ClassVar[str] = "PATCH"
    lists: ClassVar[dict[str, str]] = {"slot": "slots", "policy": "policies"}

    @checked
    def __init__(self, contract: str, envelope: int, *, version: int = 1, about: str | None = None) -> None:
        """Begin a patch for a type of documents and a version of its contract. The engine gives the patch its own
        version when it is published."""
        super().__init__()
        self._head = entry(contract=contract, envelope=envelope, version=version, about=about)
        self._slots: dict[str, Any] = {}
        self._policies: tuple[dict[str, Any], ...] = ()

    @checked
    def slot(self, name: str, fill: Fill) -> Self:
        """Fill a slot of the contract."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self.complaining("PATCH_TYPE_WRONG", f"The slot {name!r:.100} has no name.", "slots")
        if not isinstance(fill, Fill):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self.longer(_slots={**self._slots, name: fill})
        if name in self._slots:
            return self.complaining("PATCH_DUPLICATE_SLOT", f"The slot {name!r} is filled twice.", f"slots.{name}")
        problems = tuple(replace(found, place=f"slots.{name}.{found.place}") for found in fill.problems)
        return self.longer(_slots={**self._slots, name: fill.data}, problems=(*self.problems, *problems))

    @checked
    def policy(self, name: str, *, on: Names = (), capability: str | None = None, when: str | None = None) -> Self:
        """Add a condition on verbs and actions, beside those of the contract: those of `on`, or all of them."""
        policy = entry(name=name, on=name_list(on) or None, capability=capability, when=when)
        return self.longer(_policies=(*self._policies, policy))

    def build(self) -> PatchDefinition:
        """The finished patch; a DefinitionError lists everything that is wrong in its `diagnostics`.

        Whether it fits its contract is found when both are compiled."""
        policies = {"policies": list(self._policies)} if self._policies else {}
        return require_patch({**self._head, "slots": self._slots, **policies}, self.problems)
