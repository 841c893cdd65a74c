"""Options that say which instances or dead letters are meant, the same in every command that takes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Annotated, Any, Final

import typer

from holdfast.cli.completion import complete_flow, complete_status
from holdfast.cli.json_args import read_attributes
from holdfast.errors import Refused
from holdfast.runtime.ops.dead_letters import LetterFilter
from holdfast.runtime.reads.search import InstanceFilter

_PANEL: Final = "Which"
_AGO: Final = re.compile(r"(\d+)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOMENTS: Final = ("since", "until", "ended_since", "ended_until")


def _option(name: str, help: str, **more: Any) -> Any:
    return Annotated[str | None, typer.Option(name, help=help, rich_help_panel=_PANEL, **more)]


_FLOW: Final = _option("--flow", "Only of this flow.", autocompletion=complete_flow)
_INSTANCES: Final[dict[str, Any]] = {
    "flow": _FLOW,
    "status": _option("--status", "Only in this status.", autocompletion=complete_status),
    "error": _option("--error", "Only those whose last error has this code."),
    "step": _option("--step", "Only those that stand at this step, or whose last error came from it."),
    "with_reason": _option("--with-reason", "Only those whose status has this reason."),
    "since": _option("--since", "Only those started since: 90m, 3d, 2026-01-31T08:00."),
    "until": _option("--until", "Only those started before."),
    "ended_since": _option("--ended-since", "Only those that ended since."),
    "ended_until": _option("--ended-until", "Only those that ended before."),
    "key": _option("--key", "Only those started with this idempotency key."),
    "business_key": _option("--business-key", "Only those with this business key."),
    "attribute": Annotated[
        list[str] | None,
        typer.Option("--attribute", help="Only with this NAME=VALUE; all of several must fit.", rich_help_panel=_PANEL),
    ],
    "started_by": _option("--started-by", "Only what this person started."),
    "parent": _option("--parent", "Only the sub-flows of this instance."),
}
_LETTERS: Final[dict[str, Any]] = {
    "instance": _option("--instance", "Only letters of this instance."),
    "flow": _FLOW,
    "step": _option("--step", "Only letters about this step."),
    "error": _option("--error", "Only letters with this code of an error."),
    "with_reason": _option("--with-reason", "Only letters with this reason."),
    "source": _option("--source", "Only step, compensation, signal, work, effect or ack."),
    "since": _option("--since", "Only letters since: 90m, 3d, 2026-01-31T08:00."),
    "consumer": _option("--consumer", "Only failed deliveries to this consumer."),
    "environment": _option("--environment", "Only failed deliveries to consumers there."),
}


AllTenants = Annotated[
    bool, typer.Option("--all-tenants", help="Of every tenant: for operators, with the database at hand.")
]


def which_instances(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an `InstanceFilter`, and the filter they mean as `filter`."""
    return _with(command, _INSTANCES, _instances)


def which_instances_to_rerun(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `which_instances` without the key of a start: a re-run has a `--key` of its own."""
    return _with(command, {name: option for name, option in _INSTANCES.items() if name != "key"}, _instances)


def which_letters(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a `LetterFilter`, and the filter they mean as `filter`."""
    return _with(command, _LETTERS, _letters)


def _with(
    command: Callable[..., None], options: dict[str, Any], make: Callable[[dict[str, Any]], Any]
) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "filter"]

    @wraps(command)
    def act(**given: Any) -> None:
        mine = {name: given.pop(name) for name in options}
        command(filter=make(mine), **given)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]
    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    vars(act)["__signature__"] = signature.replace(parameters=[*kept, *more])
    act.__annotations__ = {each.name: each.annotation for each in (*kept, *more)}
    return act


def _instances(given: dict[str, Any]) -> InstanceFilter:
    moments = {name: take_since(given.pop(name)) for name in _MOMENTS}
    attributes = read_attributes(given.pop("attribute") or ())
    return InstanceFilter(subject_id=given.pop("started_by"), attributes=attributes, **moments, **given)


def _letters(given: dict[str, Any]) -> LetterFilter:
    return LetterFilter(instance_id=given.pop("instance"), since=take_since(given.pop("since")), **given)


def take_since(text: str | None) -> datetime | None:
    return None if text is None else take_moment(text)


def take_moment(text: str) -> datetime:
    """`90m`, `3d`, or a date or time as ISO 8601 writes it, in UTC if it names no other zone."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise Refused(
            f"{text!r} is no moment.",
            code="SINCE_INVALID",
            hint="Write how long ago, such as 90m, 6h or 3d, or a time such as 2026-01-31T08:00.",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
