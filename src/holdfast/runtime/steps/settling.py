"""Has an instance come to rest? Nothing of it is being done now: it waits for a person, an event or a moment, needs
somebody's help, or is over."""

from __future__ import annotations

from typing import Final

from holdfast.core.state import State, Token
from holdfast.core.status import TERMINAL, InstanceStatus, Phase

_BUSY: Final = frozenset({Phase.WORKING, Phase.RETRYING, Phase.CANCELLING, Phase.EXPIRING})
_BEFORE_OR_BACK: Final = frozenset({InstanceStatus.PENDING, InstanceStatus.ROLLING_BACK})


def is_settled(status: str, state: State) -> bool:
    if status in TERMINAL or status == InstanceStatus.SUSPENDED:
        return True
    return status not in _BEFORE_OR_BACK and not any(_is_busy(token) for token in state.tokens.values())


def _is_busy(token: Token) -> bool:
    """Whoever waits for the receipt of an effect has something done for them, too."""
    return token.phase in _BUSY or any(wait.kind == "receipt" for wait in token.waits)
