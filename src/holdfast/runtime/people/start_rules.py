"""Rules for the start of a workflow: the capabilities of the caller, and the required input."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

import msgspec

from holdfast.core.model.program import Program
from holdfast.errors import Forbidden, InputInvalid, Refused
from holdfast.runtime.schemas.schemas import Misfit, check_of, misfits_of, told
from holdfast.runtime.validation import check_key, several

MOST_NAME: Final = 200  # bytes
PARTITION: Final = "partition_id"
CORRELATION: Final = "correlation_id"


class Caller(msgspec.Struct, frozen=True):
    """The person or system behind a start: `Caller("alice", capabilities=("orders:start",), partition="eu")`.

    Capabilities that are None are not asked for: the code that starts has checked them. `correlation` is the request's.
    """

    id: str | None = None
    capabilities: Collection[str] | None = None
    partition: str | None = None
    correlation: str | None = None


NOBODY: Final = Caller()


def caller_of(caller: Caller | None, by: str | None) -> Caller:
    """Combine the two ways to name the starter; both at once are refused."""
    found = NOBODY if caller is None else caller
    if by is None:
        return found
    if found.id is not None:
        raise Refused(
            "The starter is named by `by` and by `caller`.", code="OPTION_MISPLACED", hint="Leave out one of them."
        )
    return msgspec.structs.replace(found, id=by)


def check_startable(program: Program) -> None:
    """Refuse to start a machine: its instances are made by the first trigger of their reference."""
    if program.machine is not None:
        raise Refused(
            f"{program.name!r} is a machine: an instance begins with the first event of its reference.",
            code="TRIGGER_NEEDED",
            hint="Use engine.trigger, `holdfast trigger`, or holdfast.trigger in SQL.",
        )


async def check_start(program: Program, raw: bytes, capabilities: Collection[str] | None = None) -> None:
    """Check a start. With capabilities of None the caller vouches for the starter."""
    _require_capabilities(program, capabilities)
    if program.rules.checks_input:
        await _check_input(program, raw)


def _require_capabilities(program: Program, capabilities: Collection[str] | None) -> None:
    if capabilities is None:
        return
    lacking = sorted({*program.policy.capabilities} - {*several(capabilities, "capability")})
    if lacking:
        raise Forbidden(
            f"Starting {program.name!r} needs {', '.join(map(repr, lacking))}.",
            code="CAPABILITY_MISSING",
            hint="Act as somebody who has it, or grant it.",
            missing=lacking,
        )


async def _check_input(program: Program, raw: bytes) -> None:
    schema = program.places[program.entry].node.metadata.get("input_schema")
    if schema is not None:
        misfits = await misfits_of(check_of(schema), msgspec.json.decode(raw))
    else:
        misfits = [] if raw[:1] == b"{" else [Misfit("$", "it must be an object")]
    if misfits:
        raise InputInvalid(
            f"The input does not fit {program.name!r}: {told(misfits)}",
            code="INPUT_INVALID",
            hint="Read the workflow for the schema of its input.",
            misfits=tuple(misfits),
        )


def _is_named(attributes: Any) -> bool:
    if not isinstance(attributes, dict):
        return False
    names: list[Any] = list(cast(dict[Any, Any], attributes))
    return all(isinstance(name, str) and 1 <= len(name.encode(errors="replace")) <= MOST_NAME for name in names)


def attributes_of(attributes: dict[str, Any] | None, caller: Caller) -> dict[str, Any] | None:
    """Merge the search attributes with the facts of the start request."""
    if attributes is not None and not _is_named(attributes):
        raise Refused(
            "The attributes must be an object with names of 1 to 200 bytes.",
            code="ATTRIBUTE_INVALID",
            hint="Give names and values.",
        )
    request = {PARTITION: caller.partition, CORRELATION: caller.correlation}
    for name, value in request.items():
        check_key(value, name)
        if attributes is not None and name in attributes:
            raise Refused(
                f"The attribute {name!r} is told by the request.",
                code="ATTRIBUTE_RESERVED",
                hint="Leave it out, or name it in a `Caller`.",
            )
    told_by_request = {name: value for name, value in request.items() if value is not None}
    return attributes if not told_by_request else {**(attributes or {}), **told_by_request}
