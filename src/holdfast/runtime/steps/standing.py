"""Where a workflow stands after somebody changed it: what is answered at once, without what only a screen needs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.program import Program
from holdfast.runtime.snapshots import Outcome
from holdfast.runtime.steps.descriptor import current_token, expiry_of
from holdfast.runtime.steps.settling import is_settled
from holdfast.runtime.views import current
from holdfast.store.reads import Instance
from holdfast.store.whereabouts import Whereabouts


class Standing(msgspec.Struct, frozen=True):
    """An instance and the step it stands at, or ended at. `is_settled`: nothing of it is being done now."""

    instance: Instance
    step: str | None
    is_settled: bool
    expires_at: datetime | None


def heard(view: Instance, latest: Outcome | None) -> Whereabouts | None:
    """What a read would find, made from the last commit that this process heard of; None: it would find more."""
    if view.created_at is None or latest is None or latest.instance is None or latest.instance.org != view.org:
        return None
    snapshot = latest.instance
    return Whereabouts(current(view, snapshot, latest.now), snapshot.definition, snapshot.state)


def is_resting(found: Whereabouts) -> bool:
    return is_settled(found.view.status, found.state)


def standing_of(found: Whereabouts, step: str | None) -> Standing:
    return Standing(found.view, step, is_resting(found), expiry_of(found.state))


def step_of(found: Whereabouts, program: Program, latest: Outcome | None) -> str | None:
    """The step people look at; None: it is over, and the last commit heard of does not tell where it ended."""
    token = current_token(found.state)
    if token is not None:
        return token.node
    if latest is None or latest.instance is None or latest.instance.version != found.view.version:
        return None
    return latest.last_step if latest.last_step in program.places else None
