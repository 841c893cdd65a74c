"""The format of files of contracts and patches: every key with the shape of its value and its meaning."""

from __future__ import annotations

from typing import Final

from holdfast.doors.shapes import (
    EVENT,
    ID,
    VISIBLE,
    Choice,
    Either,
    Expressions,
    Field,
    Fields,
    Flag,
    Items,
    Json,
    Named,
    Shape,
    Span,
    Text,
    Variants,
    Whole,
)
from holdfast.graph.expressions import MAX_LENGTH
from holdfast.graph.windows import WINDOWS

FIELD_TYPES: Final = ("string", "number", "boolean", "time", "money", "list", "object")
RUN_AS: Final = ("actor", "system", "service_account")
MOST_NODES: Final = 2_000  # of a patch
MOST_EDGES: Final = 8_000
TOO_LARGE: Final = "PATCH_TOO_LARGE"

_FIELD: Final = "^(?!.*__$)[A-Za-z][A-Za-z0-9_]{0,99}$"  # what an expression can read as entity.<name>
_PROSE: Final = r"^(?=[\s\S]*\S)[^\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]*$"
_CLEAN: Final = "text without control characters"

# Short: the ids of the graph are made of up to three names.
NAME: Final = Text("a name: a letter, then letters, digits, _ and -, at most 50", "^[A-Za-z][A-Za-z0-9_-]{0,49}$", 50)
FIELD_NAME: Final = Text("a field's name: a letter, then letters, digits and _", _FIELD, 100)
_TYPE: Final = Text("the type of a document: a letter, then letters, digits, _ and -", ID, 100)
_TITLE: Final = Text("one line of visible text", VISIBLE)
ABOUT: Final = Field(Text(_CLEAN, _PROSE, 5000), "What people may read about it.")
_EXPRESSION: Final = Text("an expression without control characters", _PROSE, MAX_LENGTH)
_CAPABILITY: Final = Text("the name of a capability", VISIBLE)
_WINDOW: Final = Choice(WINDOWS)
VERSION: Final = Whole(1, 2**31 - 1)
_NAMES: Final = Items(NAME, distinct=True, most=500)
_ONE_OR_MORE: Final = Either("a name or a list of names", (NAME, Items(NAME, least=1, distinct=True, most=500)))


def _list(of: Shape, most: int, about: str, least: int = 0) -> Field:
    return Field(Items(of, least=least, most=most), about, required=least > 0)


# --- contracts --------------------------------------------------------------------------------------------------------

_DATA_FIELD: Final = Fields(
    "field",
    {
        "name": Field(FIELD_NAME, "What expressions read as entity.<name>.", required=True),
        "type": Field(Choice(FIELD_TYPES), "The type of its values; money is in whole minor units.", required=True),
        "material": Field(Flag(), "Does a change of it void approvals? Yes if left out."),
        "indexed": Field(Flag(), "May documents be searched by it? No if left out."),
        "about": ABOUT,
    },
)
_STATE: Final = Fields(
    "state",
    {
        "name": Field(NAME, "The state's name, unique in the contract.", required=True),
        "window": Field(_WINDOW, "What edits it permits; editable if left out."),
        "initial": Field(Flag(), "Do documents begin here? Without any mark the first state is the initial one."),
        "ends": Field(Flag(), "Entering it ends the instance."),
        "about": ABOUT,
    },
)
_VERB: Final = Fields(
    "verb",
    {
        "name": Field(NAME, "What people call.", required=True),
        "from": Field(_ONE_OR_MORE, "The state that is left, or several.", required=True),
        "to": Field(NAME, "The state that is entered.", required=True),
        "capability": Field(_CAPABILITY, "What the caller needs."),
        "when": Field(_EXPRESSION, "Permitted only if this holds."),
        "about": ABOUT,
    },
)
_GATE: Final = Fields(
    "gate",
    {
        "name": Field(NAME, "The gate's name.", required=True),
        "from": Field(NAME, "The state that is left.", required=True),
        "to": Field(NAME, "The state that is entered.", required=True),
        "approvals": Field(Whole(0, 100), "The least number of approvals it demands of every organisation."),
        "about": ABOUT,
    },
)
_ACTION: Final = Fields(
    "action",
    {
        "name": Field(NAME, "What people and nodes of a patch call.", required=True),
        "sets": Field(_NAMES, "The fields it may change; all of them if left out."),
        "capability": Field(_CAPABILITY, "What the caller needs."),
        "run_as": Field(Choice(RUN_AS), "On whose behalf it runs; actor if left out."),
        "about": ABOUT,
    },
)
_POLICY: Final = Fields(
    "policy",
    {
        "name": Field(NAME, "The policy's name.", required=True),
        "on": Field(_ONE_OR_MORE, "The verbs and actions it is for; all of them if left out."),
        "capability": Field(_CAPABILITY, "What the caller needs."),
        "when": Field(_EXPRESSION, "What must hold."),
    },
)
_SLOT: Final = Fields(
    "slot",
    {
        "name": Field(NAME, "The slot's name.", required=True),
        "entry": Field(NAME, "The state or the gate before it.", required=True),
        "exit": Field(NAME, "The gate, the verb or the state behind it.", required=True),
        "rejected": Field(NAME, "The gate behind the port `rejected`; the only other gate of the entry if left out."),
        "window": Field(_WINDOW, "What edits it permits; what its state permits if left out."),
        "stable": Field(Flag(), "Does a material edit meanwhile amend the document? No if left out."),
    },
)
_AMENDMENT: Final = Fields(
    "amendment",
    {
        "states": Field(_NAMES, "Where the verb `amend` is offered."),
        "drift": Field(NAME, "The state to which a material edit in a stable slot leads."),
    },
)
CONTRACT: Final = Fields(
    "contract",
    {
        "type": Field(_TYPE, "The type of the documents.", required=True),
        "version": Field(VERSION, "A published version never changes; 1 if left out."),
        "about": ABOUT,
        "fields": _list(_DATA_FIELD, 500, "The fields of the document."),
        "states": _list(_STATE, 200, "The states of the document.", least=1),
        "verbs": _list(_VERB, 1000, "The transitions that people call."),
        "gates": _list(_GATE, 200, "The transitions that the engine makes by itself."),
        "amendment": Field(_AMENDMENT, "How a document is amended."),
        "slots": _list(_SLOT, 200, "Where organisations add steps."),
        "actions": _list(_ACTION, 200, "Changes of the document that are no transitions."),
        "policies": _list(_POLICY, 200, "Conditions on calls."),
    },
)

# --- patches ----------------------------------------------------------------------------------------------------------

_PAYLOAD: Final = Field(Expressions(), "What is sent: name → expression.")
_APPROVERS: Final = Fields(
    "approvers",
    {
        "user": Field(_TITLE, "This person."),
        "role": Field(_TITLE, "Anybody with this role."),
        "expression": Field(_EXPRESSION, "An expression that gives the person, such as `entity.owner`."),
    },
)
_COMMON: Final = {
    "id": Field(NAME, "The node's name in edges; unique in the slot.", required=True),
    "kind": Field(Choice(()), "What the node does.", required=True),
    "name": Field(_TITLE, "What people see."),
    "about": ABOUT,
    "window": Field(_WINDOW, "A stricter edit window while a token is here."),
}
_DEADLINE: Final = Field(Span(), "How long until the edge on `timeout` is taken.")

NODE_KINDS: Final[dict[str, Fields]] = {
    kind: Fields(f"{kind} node", {**_COMMON, **own})
    for kind, own in {
        "condition": {},
        "split": {},
        "join": {"mode": Field(Choice(("all", "any")), "How many branches it waits for.", required=True)},
        "script": {"sets": Field(Expressions(), "What becomes of the context: name → expression.", required=True)},
        "rule": {
            "table": Field(NAME, "The decision table.", required=True),
            "table_version": Field(VERSION, "Its version; the newest one of the time of compiling if left out."),
        },
        "action": {
            "action": Field(NAME, "The action of the contract.", required=True),
            "payload": _PAYLOAD,
            "run_as": Field(Choice(RUN_AS), "On whose behalf it runs; what the contract says if left out."),
        },
        "approval": {
            "approvers": Field(_APPROVERS, "Who is asked: a user, a role or an expression.", required=True),
            "form": Field(Json(), "A JSON Schema of what the approver fills in."),
            "due": Field(Span(), "How long until it should be decided; then the edge on `timeout` is taken, if any."),
        },
        "wait_timer": {
            "delay": Field(Span(zero_allowed=True), "Wait this long."),
            "until": Field(_EXPRESSION, "Wait until this moment: an expression."),
            "cron": Field(Text("a cron expression", VISIBLE), "Wait until the next match."),
            "timezone": Field(Text("a time zone", VISIBLE), "The time zone of cron; UTC if left out."),
        },
        "wait_event": {
            "event": Field(Text("an event's name", EVENT, 100), "Wait for this event.", required=True),
            "key": Field(_EXPRESSION, "An expression whose value addresses the wait from outside."),
            "deadline": _DEADLINE,
        },
        "webhook_out": {
            "url": Field(Text("a URL", VISIBLE, 2000), "Where it is sent.", required=True),
            "headers": Field(Named(Text("text", VISIBLE, 2000), Text("a header", VISIBLE), 100), "HTTP headers."),
            "secret": Field(_TITLE, "The name of the secret that signs."),
            "payload": _PAYLOAD,
            "awaits": Field(Flag(), "Wait for the receipt? No if left out."),
        },
        "notification": {
            "channel": Field(NAME, "mail, log, or another kind of effect.", required=True),
            "to": Field(_EXPRESSION, "An expression that gives the recipient."),
            "subject": Field(_TITLE, "The subject."),
            "text": Field(Text(_CLEAN, _PROSE, 5000), "The text."),
            "payload": _PAYLOAD,
        },
        "sub_flow": {
            "flow": Field(_TITLE, "The flow that is started.", required=True),
            "flow_version": Field(VERSION, "Its version; the newest one when it starts if left out."),
            "payload": _PAYLOAD,
            "deadline": _DEADLINE,
        },
        "policy_gate": {
            "capability": Field(_CAPABILITY, "What the actor needs."),
            "when": Field(_EXPRESSION, "What must hold."),
        },
    }.items()
}
_EDGE: Final = Fields(
    "edge",
    {
        "from": Field(_ONE_OR_MORE, "The node that is left, or the port `in`; or several nodes.", required=True),
        "to": Field(_ONE_OR_MORE, "The node that is entered, or the port `out` or `rejected`.", required=True),
        "on": Field(Text("an event's name", EVENT, 100), "The event that takes it; completed if left out."),
        "when": Field(_EXPRESSION, "Taken only if this holds."),
        "priority": Field(Whole(-(2**31), 2**31 - 1), "Lower ones are tried first; 0 if left out."),
        "label": Field(_TITLE, "What drawings say beside it."),
    },
)
_FILL: Final = Fields(
    "slot",
    {
        "nodes": Field(Items(Variants("node", "kind", NODE_KINDS), most=MOST_NODES, code=TOO_LARGE), "The steps."),
        "edges": Field(Items(_EDGE, most=MOST_EDGES, code=TOO_LARGE), "What leads from one to the next."),
        "window": Field(_WINDOW, "A stricter edit window than the slot's own."),
        "entry_mode": Field(Choice(("serial", "branch")), "What the edges from `in` must amount to."),
        "exit_mode": Field(Choice(("single", "join")), "What the edges to `out` must amount to."),
    },
)
PATCH: Final = Fields(
    "patch",
    {
        "contract": Field(_TYPE, "The type of the documents.", required=True),
        "envelope": Field(VERSION, "The version of the contract it was written for.", required=True),
        "version": Field(VERSION, "Its number, which the engine gives when it is published."),
        "about": ABOUT,
        "slots": Field(Named(_FILL, NAME, 200), "The steps per slot."),
        "policies": _list(_POLICY, 200, "Further conditions on calls, beside those of the contract."),
    },
)

# --- files ------------------------------------------------------------------------------------------------------------

OF_CONTRACTS: Final = {
    "contract": Field(CONTRACT, "One contract."),
    "contracts": Field(Items(CONTRACT, least=1, most=100), "Several contracts."),
}
OF_PATCHES: Final = {
    "patch": Field(PATCH, "One patch."),
    "patches": Field(Items(PATCH, least=1, most=100), "Several patches."),
}
OF_TABLES: Final = {"tables": Field(Items(Json(), least=1, most=100), "Decision tables.")}
FILE: Final = Fields("file", {**OF_CONTRACTS, **OF_PATCHES, **OF_TABLES})
