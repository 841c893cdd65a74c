"""Rules of a patch that need no contract: names that are given once, and what one node alone can break."""

from __future__ import annotations

from holdfast.doors.envelope.model import PatchNode
from holdfast.doors.envelope.reading.building import Part, PatchDraft
from holdfast.doors.envelope.reading.names import PORTS
from holdfast.doors.yaml.problems import Findings
from holdfast.errors import PayloadError
from holdfast.graph.checks.schemas import schema_problem
from holdfast.payloads import canonical


def check_patch(draft: PatchDraft, findings: Findings) -> None:
    """Report every rule that the patch breaks by itself."""
    rules = _PatchRules(draft, findings)
    for name in draft.patch.slots:
        rules.names(draft.parts[name])
        for part in draft.parts[name]:
            rules.node(part)
    rules.policies()


class _PatchRules:
    def __init__(self, draft: PatchDraft, findings: Findings) -> None:
        self.draft = draft
        self.findings = findings

    def add(self, code: str, part: Part, key: str, message: str) -> None:
        self.findings.add(code, message, self.draft.mark(part.path, *([key] if key else [])))

    def names(self, parts: tuple[Part, ...]) -> None:
        seen: set[str] = set()
        for part in parts:
            name: str = part.value.id
            if name in PORTS:
                self.add("PATCH_NAME_RESERVED", part, "id", f"{name!r} is a port of the slot.")
            elif name in seen:
                self.add("PATCH_DUPLICATE_NODE", part, "id", f"There is another node {name!r} before this one.")
            seen.add(name)

    def node(self, part: Part) -> None:
        node: PatchNode = part.value
        if node.approvers is not None:
            given = [key for key in ("user", "role", "expression") if getattr(node.approvers, key) is not None]
            if len(given) != 1 and not self.has_refused(part, "approvers", ("user", "role", "expression")):
                found = " and ".join(given) or "none of them"
                message = f"Approvers are a user, a role or an expression; this has {found}."
                self.add("PATCH_APPROVERS_AMBIGUOUS", part, "approvers", message)
        if node.kind == "wait_timer":
            given = [key for key in ("delay", "until", "cron") if (*part.path, key) in self.draft.marks]
            if len(given) != 1:
                found = " and ".join(given) or "none of them"
                self.add("PATCH_TIME_AMBIGUOUS", part, "", f"A timer has a delay, until or cron; this has {found}.")
        if node.kind == "policy_gate" and not any(
            (*part.path, key) in self.draft.marks for key in ("capability", "when")
        ):
            self.add("PATCH_POLICY_EMPTY", part, "", f"The policy gate {node.id!r} demands nothing.")
        if node.form is not None:
            self.form(part, node.form)

    def has_refused(self, part: Part, key: str, inner: tuple[str, ...]) -> bool:
        """Check whether a key was written whose value could not be read."""
        approvers = part.value.approvers
        return any((*part.path, key, name) in self.draft.marks and getattr(approvers, name) is None for name in inner)

    def form(self, part: Part, form: dict[str, object]) -> None:
        try:
            canonical(form, "The form")
        except PayloadError as error:
            self.add("PATCH_VALUE_INVALID", part, "form", error.message)
            return
        found = schema_problem(form)
        if found is not None:
            mark = self.draft.mark(part.path, "form", *found.path)
            self.findings.add("PATCH_VALUE_INVALID", found.message, mark)

    def policies(self) -> None:
        seen: set[str] = set()
        for part in self.draft.parts[""]:
            policy = part.value
            if policy.name in seen:
                self.add("PATCH_POLICY_TAKEN", part, "name", f"There is a policy {policy.name!r} before this one.")
            seen.add(policy.name)
            if policy.capability is None and policy.when is None:
                self.add("PATCH_POLICY_EMPTY", part, "", f"The policy {policy.name!r} demands nothing.")
