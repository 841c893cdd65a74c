"""Quiescence: an instance rests when no work is in flight and it waits for a person, an event, a moment or an operator,
or has ended.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.model.state import State, Token
from holdfast.core.model.status import TERMINAL, InstanceStatus, Phase

_BUSY: Final = frozenset({Phase.WORKING, Phase.RETRYING, Phase.CANCELLING, Phase.EXPIRING})
_BEFORE_OR_BACK: Final = frozenset({InstanceStatus.PENDING, InstanceStatus.ROLLING_BACK})


def is_settled(status: str, state: State) -> bool:
    if status in TERMINAL or status == InstanceStatus.SUSPENDED:
        return True
    return status not in _BEFORE_OR_BACK and not any(_is_busy(token) for token in state.tokens.values())


def _is_busy(token: Token) -> bool:
    """Check for work in flight; a token that waits for the receipt of an effect counts as busy."""
    return token.phase in _BUSY or any(wait.kind == "receipt" for wait in token.waits)
