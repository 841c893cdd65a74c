"""Message of a wait that timed out, about the instance it waited for."""

from __future__ import annotations

from typing import Final

from holdfast.core.model.state import Token, Wait
from holdfast.core.model.status import InstanceStatus
from holdfast.store.reads.positions import Whereabouts

MOST: Final = 5  # places that are named

_UNTOUCHED: Final = "no worker has taken it on yet"


def unended(found: Whereabouts, seconds: float) -> str:
    view = found.view
    return (
        f"Instance {view.id} of flow {view.flow!r} version {view.flow_version} is still {view.status}"
        f" after {seconds:g} s: {_places(found)}."
    )


def _places(found: Whereabouts) -> str:
    if found.view.status == InstanceStatus.PENDING:
        return _UNTOUCHED
    tokens = sorted(found.state.tokens.values(), key=lambda token: token.node)
    told = [_place(token) for token in tokens[:MOST]]
    more = [f"{len(tokens) - MOST} more"] if len(tokens) > MOST else []
    return "; ".join(told + more) or "it is between two steps"


def _place(token: Token) -> str:
    waits = " or ".join(dict.fromkeys(_wait(wait) for wait in token.waits))
    return f"{token.node!r} is {token.phase}" + (f", waits for {waits}" if waits else "")


def _wait(wait: Wait) -> str:
    return f"{wait.kind} {wait.event!r}" if wait.event else wait.kind
