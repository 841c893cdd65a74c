"""Workflows in a list: of each what a person needs to pick one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.model.program import Program
from holdfast.runtime.people.descriptor import WorkflowRef, current_token, expiry_of, step_name, workflow_of
from holdfast.runtime.people.start_rules import PARTITION
from holdfast.store.reads.positions import Whereabouts
from holdfast.views.history import object_of
from holdfast.views.statuses import shown_status


class Summary(msgspec.Struct, frozen=True):
    id: str
    workflow: WorkflowRef
    status: str
    current_step: str | None  # None: it is over
    current_step_name: str | None
    subject_id: str | None
    partition_id: str | None
    business_key: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    expires_at: datetime | None


class Summaries(msgspec.Struct, frozen=True):
    """Some workflows and where the next page begins; None when this is the last one."""

    items: Sequence[Summary]
    next: str | None


def summary_of(found: Whereabouts, program: Program) -> Summary:
    view, token = found.view, current_token(found.state)
    node = None if token is None else program.places[token.node].node
    return Summary(
        id=view.id,
        workflow=workflow_of(program, view),
        status=shown_status(view.status),
        current_step=None if node is None else node.id,
        current_step_name=None if node is None else step_name(node),
        subject_id=view.created_by,
        partition_id=object_of(view.attributes).get(PARTITION),
        business_key=view.business_key,
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
        expires_at=expiry_of(found.state),
    )
