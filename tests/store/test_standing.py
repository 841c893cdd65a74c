"""What the database refuses on a standing session is told with what to do about it."""

from __future__ import annotations

import pytest

from holdfast import Engine, Flow
from holdfast.errors import StoreError
from running import Evidence

pytestmark = pytest.mark.anyio


async def test_a_refusal_says_what_to_do(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("alter table holdfast.definitions add check (name <> 'unwanted') not valid")
    with pytest.raises(StoreError) as refusal:
        await engine.publish(Flow("unwanted").step("one", "one").build())
    assert (refusal.value.code, refusal.value.detail["sqlstate"]) == ("STORE_REFUSED", "23514")
    assert "holdfast doctor" in refusal.value.hint
