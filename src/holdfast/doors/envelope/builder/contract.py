"""The builder of contracts: the lifecycle of a type of documents, written as one expression."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from holdfast.doors.envelope.builder.fluent import Fluent, Names, checked, entry, name_list, names
from holdfast.doors.envelope.model import ContractDefinition, FieldType, RunAs, Window
from holdfast.doors.envelope.reading.load import require_contract


class Contract(Fluent):
    """`Contract("invoice").state("draft").….build()`. Mistakes are gathered and raised together by `build`."""

    prefix: ClassVar[str] = "CONTRACT"
    lists: ClassVar[dict[str, str]] = {
        "field": "fields",
        "state": "states",
        "verb": "verbs",
        "gate": "gates",
        "amendment": "amendment",
        "slot": "slots",
        "action": "actions",
        "policy": "policies",
    }

    @checked
    def __init__(self, type: str, version: int = 1, *, about: str | None = None) -> None:
        """Begin a contract for documents of this type. A published version never changes."""
        super().__init__()
        self._head = entry(type=type, version=version, about=about)
        self._lists: dict[str, tuple[dict[str, Any], ...]] = {}

    @checked
    def field(
        self, name: str, type: FieldType, *, material: bool = True, indexed: bool = False, about: str | None = None
    ) -> Self:
        """Add a field of the document, which expressions read as `entity.<name>`; money is in whole minor units.

        A change of a material field voids approvals."""
        return self._with("fields", name=name, type=type, material=material, indexed=indexed, about=about)

    @checked
    def state(
        self,
        name: str,
        *,
        window: Window = "editable",
        initial: bool = False,
        ends: bool = False,
        about: str | None = None,
    ) -> Self:
        """Add a state with the edits it permits. Entering one that `ends` ends the instance.

        Documents begin in the state that is marked as initial, without any mark in the first."""
        return self._with("states", name=name, window=window, initial=initial, ends=ends, about=about)

    @checked
    def verb(
        self,
        name: str,
        source: Names,
        target: str,
        *,
        capability: str | None = None,
        when: str | None = None,
        about: str | None = None,
    ) -> Self:
        """Add a transition that people call, from one state or from several."""
        return self._with(
            "verbs", name=name, from_=names(source), to=target, capability=capability, when=when, about=about
        )

    @checked
    def gate(self, name: str, source: str, target: str, *, approvals: int = 0, about: str | None = None) -> Self:
        """Add a transition that the engine makes by itself, after at least this number of approvals."""
        return self._with("gates", name=name, from_=source, to=target, approvals=approvals, about=about)

    @checked
    def amendment(self, *states: str, drift: str | None = None) -> Self:
        """Offer the verb `amend` in these states. `drift` is where a material edit in a stable slot leads."""
        given = self._head.get("amendment", {})
        offered = [*given.get("states", []), *(state for state in states if state not in given.get("states", []))]
        amendment = {**given, **({"states": offered} if offered else {}), **entry(drift=drift)}
        return self.longer(_head={**self._head, "amendment": amendment})

    @checked
    def slot(
        self,
        name: str,
        entry: str,
        exit: str,
        *,
        rejected: str | None = None,
        window: Window | None = None,
        stable: bool = False,
    ) -> Self:
        """Add a place for steps of organisations: between a state and a gate or a verb of it, or behind a gate.

        `rejected` is the gate behind the port of that name; without it the only other gate of the state."""
        return self._with("slots", name=name, entry=entry, exit=exit, rejected=rejected, window=window, stable=stable)

    @checked
    def action(
        self,
        name: str,
        *,
        sets: Names = (),
        capability: str | None = None,
        run_as: RunAs = "actor",
        about: str | None = None,
    ) -> Self:
        """Add a change of the document that is no transition. `sets` are the fields it may change: all if left out."""
        return self._with("actions", name=name, sets=name_list(sets), capability=capability, run_as=run_as, about=about)

    @checked
    def policy(self, name: str, *, on: Names = (), capability: str | None = None, when: str | None = None) -> Self:
        """Add a condition on verbs and actions: those of `on`, or all of them."""
        return self._with("policies", name=name, on=name_list(on) or None, capability=capability, when=when)

    def build(self) -> ContractDefinition:
        """The finished contract; a DefinitionError lists everything that is wrong in its `diagnostics`."""
        lists = {key: list(entries) for key, entries in self._lists.items()}
        return require_contract({**self._head, **lists}, self.problems)

    def _with(self, key: str, **fields: Any) -> Self:
        longer = (*self._lists.get(key, ()), entry(**fields))
        return self.longer(_lists={**self._lists, key: longer})
