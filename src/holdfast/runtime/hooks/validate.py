"""Inputs that do not fit are refused: of a flow when it is started, of a step before its handler is called."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InputInvalid
from holdfast.runtime.hooks.middleware import Call, Middleware
from holdfast.runtime.schemas.schemas import check_of, misfits_of, told
from holdfast.runtime.validation import check_text
from holdfast.runtime.worker.context import Context
from holdfast.runtime.worker.handlers import StepInputInvalid


class Validate(Middleware):
    """`Validate(flow="order", schema=Order)` looks at starts, `Validate(flow="order", step="charge", schema=…)` at the
    calls of a step. The schema is a JSON Schema, a Pydantic model, or a type such as a dataclass."""

    def __init__(self, *, flow: str, step: str | None = None, schema: Any) -> None:
        check_text(flow or "", "flow of a Validate")
        check_text(step, "step of a Validate")
        self.flow = flow
        self.step_name = step
        self._check = check_of(schema)

    async def flow_starting(self, flow: str, input: Any) -> None:
        if self.step_name is not None or flow != self.flow:
            return
        misfits = tuple(await misfits_of(self._check, input))
        if misfits:
            raise InputInvalid(
                f"The input of {flow!r} does not fit: {told(misfits)}",
                misfits=misfits,
                hint="Nothing was started.",
                path=misfits[0].path,
            )

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        if ctx.step == self.step_name and ctx.flow == self.flow:
            try:
                misfits = tuple(await misfits_of(self._check, data))
            except InputInvalid as refusal:
                raise StepInputInvalid(refusal.message, ()) from None
            if misfits:
                raise StepInputInvalid(f"The input of {ctx.step!r} does not fit: {told(misfits)}", misfits)
        await call()
