"""What tests of several modules of this folder start from."""

from __future__ import annotations

import pytest
from task_office import EXPENSE, REVIEW

from holdfast import Engine


@pytest.fixture
async def office(engine: Engine) -> Engine:
    await engine.publish(EXPENSE)
    await engine.publish(REVIEW)
    return engine
