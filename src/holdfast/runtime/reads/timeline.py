"""Read the timeline of an instance from an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.views.timeline import Entry, timeline

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.validation import Id

MOST: Final = 1000  # of each kind


async def read_timeline(
    engine: Engine, instance_id: Id, tells: Callable[[str | None], bool] = lambda _: True
) -> tuple[list[Entry], bool]:
    """Read the first entries of an instance in order, and whether there are more; `tells` selects the steps by name."""
    steps = await engine.steps(instance_id, limit=MOST)
    events = await engine.events(instance_id, limit=MOST)
    tasks = await engine.tasks(instance_id, limit=MOST)
    entries = timeline(
        (step for step in steps if tells(step.name)),
        (event for event in events if tells(event.node)),
        (task for task in tasks if tells(task.node)),
    )
    return entries, any(len(found) == MOST for found in (steps, events, tasks))
