"""The audit trail of what happens beside the decisions of an instance: a refusal, an intervention."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.store.pg.session import Session
from holdfast.store.pg.statements import SQL


async def note_event(session: Session, instance: bytes, type: str, actor: str, detail: dict[str, Any]) -> None:
    row = instance, instance[15], type, actor, msgspec.json.encode(detail)
    await session.once(SQL.use_worker.one(), SQL.note_events.rows([row]))
