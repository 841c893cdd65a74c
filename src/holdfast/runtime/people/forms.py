"""Validation of a person's answer against the form of the task, where the form is a JSON Schema."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.people.tasks import is_rejection
from holdfast.errors import HoldfastError, InputInvalid
from holdfast.logs import logger
from holdfast.runtime.schemas.schemas import Check, Misfit, check_of, misfits_of, told
from holdfast.store.tasks import Task

log = logger("holdfast.tasks")


async def refusal_of(task: Task, decision: str, raw: bytes | None) -> InputInvalid | None:
    misfits = () if task.form is None else await misfits_of_form(task.form, task.node, decision, raw)
    if not misfits:
        return None
    return InputInvalid(
        f"The data does not fit the form of {task.node!r}: {told(misfits)}",
        code="FORM_MISFIT",
        hint="Read the task for its form and decide again.",
        misfits=misfits,
        path=misfits[0].path,
    )


async def misfits_of_form(form: Any, node: str, decision: str, raw: bytes | None) -> tuple[Misfit, ...]:
    """Check an answer against the form. A rejection may leave the form empty, but not fill it in wrongly."""
    if raw is None and is_rejection(decision):
        return ()
    check = _check_of_form(form, node)
    return () if check is None else tuple(await misfits_of(check, {} if raw is None else msgspec.json.decode(raw)))


def _check_of_form(form: Any, node: str) -> Check | None:
    try:
        return check_of(form)
    except HoldfastError as failure:
        log.warning("The form of %r is not enforced: %s", node, failure.message)
        return None
