from __future__ import annotations

from collections.abc import Iterator

import pytest
from effect_servers import Mailbox, Receiver, running_mailbox, running_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def mail_server() -> Iterator[tuple[Mailbox, int]]:
    with running_mailbox() as mail_server:
        yield mail_server
