from __future__ import annotations

from collections.abc import Iterator

import pytest
from invoker_service import Listener, running_listener


@pytest.fixture
def listener() -> Iterator[Listener]:
    with running_listener() as listener:
        yield listener
