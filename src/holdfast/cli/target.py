"""The target of a command: the database of this machine, or with `--url` a server through its API.

Both offer the same verbs with the same answers, so a command is written once and never asks which of them it has.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn, TypeAlias

import typer

from holdfast.cli.render.output import warn
from holdfast.errors import Refused
from holdfast.logs import logger
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.runtime.envelopes.rebase import Rebased
from holdfast.runtime.ops.dead_letters import LetterFilter

if TYPE_CHECKING:
    from holdfast.client import Client


class Server:
    """A server under the names an engine has for the same verbs."""

    def __init__(self, client: Client) -> None:
        self.get = client.get
        self.find = client.find
        self.steps = client.steps
        self.events = client.events
        self.settle = client.settle
        self.publish = client.publish
        self.publish_many = client.publish_many
        self.start = client.start
        self.advance = client.advance
        self.signal = client.signal
        self.signal_key = client.signal_key
        self.cancel = client.cancel
        self.abort = client.abort
        self.suspend = client.suspend
        self.resume = client.resume
        self.rerun = client.rerun
        self.flows = client.flows.list
        self.flow = client.flows.get
        self.tasks = client.tasks.list
        self.inbox = client.tasks.inbox
        self.task = client.tasks.get
        self.task_events = client.tasks.events
        self.claim = client.tasks.claim
        self.release = client.tasks.release
        self.assign = client.tasks.assign
        self.delegate = client.tasks.delegate
        self.decide = client.tasks.decide
        self.dead_letters = client.dead_letters.list
        self.find_dead_letters = client.dead_letters.find
        self.dead_letter = client.dead_letters.get
        self.requeue = client.dead_letters.requeue
        self.replay_dead_letters = client.dead_letters.requeue_many
        self.discard_dead_letters = client.dead_letters.discard
        self.effects = client.effects.of
        self.list_effects = client.effects.list
        self.get_effect = client.effects.get
        self.replay_effect = client.effects.resend
        self.workers = client.workers
        self.lifecycle = client.lifecycle
        self.publish_contract = client.contracts.publish
        self.contracts = client.contracts.list
        self.contract = client.contracts.get
        self.effective = client.contracts.effective
        self.contract_difference = client.contracts.difference
        self.contract_difference_page = client.contracts.difference_page
        self.simulate_document = client.contracts.simulate
        self.contract_events = client.contracts.events
        self.save_patch_draft = client.contracts.save_draft
        self.patch_draft = client.contracts.draft
        self.drop_patch_draft = client.contracts.drop_draft
        self.check_patch = client.contracts.check
        self.publish_patch = client.contracts.publish_patch
        self.patches = client.contracts.patches
        self.restore_patch = client.contracts.restore
        self.archive_patch = client.contracts.archive
        self.publish_table = client.tables.publish
        self.tables = client.tables.list
        self.table = client.tables.get
        self._rebase = client.contracts.rebase
        self.import_machine = client.machines.import_machine
        self.page_machines = client.machines.list
        self.describe_machine = client.machines.get
        self.backfill = client.machines.backfill
        self.trigger = client.trigger
        self.trigger_answer = client.trigger_answer
        self.machine = client.machine
        self.ack = client.ack
        self.consumers = client.consumers.list
        self.get_consumer = client.consumers.get
        self.register_consumer = client.consumers.register
        self.remove_consumer = client.consumers.remove
        self.replay_consumer = client.consumers.replay
        self.receive = client.consumers.receive
        self.deliveries = client.consumers.deliveries
        self.notices = client.notices.list
        self.follow_notices = client.notices.follow
        self.activity = client.activities.write
        self.activities = client.activities.of
        self.freeze_activity = client.activities.freeze
        self.unfreeze_activity = client.activities.unfreeze

    def rebase(
        self, type: str, to_version: int | None, *, by: str, reason: str | None, dry_run: bool, all_orgs: bool
    ) -> list[Rebased]:
        if all_orgs:
            self._refuse_all()
        return self._rebase(type, to_version, by=by, reason=reason, dry_run=dry_run)

    def all_dead_letters(self, filter: LetterFilter, *, after: str | None = None, limit: int = 50) -> NoReturn:
        self._refuse_all()

    def _refuse_all(self) -> NoReturn:
        raise Refused(
            "A server tells of one tenant only.",
            code="ALL_TENANTS_NEED_DATABASE",
            hint="Leave out --url (HOLDFAST_URL) and set HOLDFAST_DSN, where the login may be holdfast_worker.",
        )


Place: TypeAlias = SyncEngine | Server


class Where(NamedTuple):
    url: str | None = None
    api_key: str | None = None
    tenant: str | None = None
    subject: str | None = None


_WHERE: ContextVar[Where] = ContextVar("where", default=Where())  # noqa: B039 - a NamedTuple does not change

_PANEL: Final = "Where"
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="HOLDFAST_URL", rich_help_panel=_PANEL, help="A server to act on instead of the database."
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="HOLDFAST_API_KEY", rich_help_panel=_PANEL, help="The key to show the server."),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", rich_help_panel=_PANEL, help="The organisation; a server in development believes it."),
]
Subject = Annotated[
    str | None,
    typer.Option("--subject", rich_help_panel=_PANEL, help="Who asks; only a server in development believes it."),
]
_OPTIONS: Final = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
    for name, option in {"url": Url, "api_key": ApiKey, "tenant": Tenant, "subject": Subject}.items()
]


def anywhere(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where it acts; `place()` then is there."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def act(*, url: str | None, api_key: str | None, tenant: str | None, subject: str | None, **given: Any) -> None:
        token = _WHERE.set(Where(url or None, api_key or None, tenant or None, subject or None))
        try:
            command(**given)
        finally:
            _WHERE.reset(token)

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    vars(act)["__signature__"] = signature.replace(parameters=[*own, *_OPTIONS])
    act.__annotations__ = {each.name: each.annotation for each in (*own, *_OPTIONS)}
    return act


@contextmanager
def place() -> Generator[Place]:
    where = _WHERE.get()
    if where.url is None:
        with SyncEngine(org=where.tenant) as engine:
            yield engine
        return
    from holdfast.client import Client  # only those who need it pay for an HTTP client

    with (
        _logged_warnings(),
        Client(where.url, api_key=where.api_key, tenant=where.tenant, subject=where.subject) as client,
    ):
        yield Server(client)


@contextmanager
def _logged_warnings() -> Generator[None]:
    """Print what the client warns of."""
    log, printed = logger("holdfast.client"), _Printed(logging.WARNING)
    log.addHandler(printed)
    try:
        yield
    finally:
        log.removeHandler(printed)


class _Printed(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def actor(by: str | None) -> str:
    """The actor for the audit trail; "" for a server, which knows the owner of the key."""
    where = _WHERE.get()
    if where.url is not None and where.api_key is not None:
        if by is not None:
            raise Refused(
                "Who does it is whoever the API key belongs to.",
                code="ACTOR_KNOWN",
                hint="Leave out --by, or act with a key of that person.",
            )
        return ""
    who = by or where.subject
    if who is None:
        raise typer.BadParameter("Missing option '--by': who does it stands in the audit trail.")
    return who
