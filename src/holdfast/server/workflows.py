"""A workflow as start, advance and cancel answer it: the instance, without what only a screen needs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.runtime.people.descriptor import Descriptor
from holdfast.runtime.people.standing import Standing
from holdfast.runtime.people.start_rules import PARTITION
from holdfast.views.statuses import shown_status

OVER: Final = frozenset({"completed", "failed", "cancelled"})


class Workflow(msgspec.Struct, frozen=True):
    id: str
    workflow_id: str
    tenant_id: str
    partition_id: str | None
    subject_id: str | None
    current_step: str | None
    status: str
    reason: str | None
    state: Any
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    expires_at: datetime | None


def instance_of(found: Descriptor) -> Workflow:
    return Workflow(
        id=found.id,
        workflow_id=found.workflow.id,
        tenant_id=found.tenant_id,
        partition_id=found.partition_id,
        subject_id=found.subject_id,
        current_step=None if found.current_step is None else found.current_step.id,
        status=found.status,
        reason=found.reason,
        state=found.state,
        version=found.version,
        created_at=found.created_at,
        updated_at=found.updated_at,
        expires_at=found.expires_at,
    )


def changed(found: Standing) -> Workflow:
    """The same view, of a workflow right after a change."""
    instance = found.instance
    attributes: Mapping[str, Any] = instance.attributes or {}
    return Workflow(
        id=instance.id,
        workflow_id=instance.flow,
        tenant_id=instance.org,
        partition_id=attributes.get(PARTITION),
        subject_id=instance.created_by,
        current_step=found.step,
        status=shown_status(instance.status),
        reason=instance.reason,
        state=instance.data,
        version=instance.version,
        created_at=instance.created_at,
        updated_at=instance.updated_at,
        expires_at=found.expires_at,
    )
