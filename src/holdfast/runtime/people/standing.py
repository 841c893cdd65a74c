"""Position of a workflow after a change: the immediate answer, without the parts that only a screen needs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.model.program import Program
from holdfast.runtime.commit.instance_cache import Outcome
from holdfast.runtime.people.descriptor import current_token, expiry_of
from holdfast.runtime.people.quiescence import is_settled
from holdfast.runtime.reads.views import current
from holdfast.store.reads.instances import Instance
from holdfast.store.reads.positions import Whereabouts


class Standing(msgspec.Struct, frozen=True):
    """An instance with its current or last step. `is_settled`: no work of it is in flight."""

    instance: Instance
    step: str | None
    is_settled: bool
    expires_at: datetime | None


def heard(view: Instance, latest: Outcome | None) -> Whereabouts | None:
    """The position by the last commit this process knows of; None where a read would find more."""
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
