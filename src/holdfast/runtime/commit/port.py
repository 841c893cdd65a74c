"""The port of the committer to the worker of its process: questions before a commit, news after it."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.model.decision import Dispatch
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.items import Item


class Port(Protocol):
    """The worker as the committer sees it."""

    def leases(self, dispatch: Dispatch) -> bool:
        """Decide whether the worker takes this step with the commit that opens it."""
        ...

    def room(self) -> int:
        """Count the instances with signals that a lane may take on."""
        ...

    def dropped(self, item: Item) -> None:
        """Hear of a result that will never be committed."""
        ...

    def committed(self, plan: Plan) -> None:
        """Hear of a commit that has been answered."""
        ...

    def reconnected(self) -> None:
        """Hear of a connection that was lost: a commit with its answer unread may have leased steps."""
        ...


class NoWorker:
    """The port of a process without a worker: it leases nothing and takes on no signals."""

    def leases(self, dispatch: Dispatch) -> bool:
        return False

    def room(self) -> int:
        return 0

    def dropped(self, item: Item) -> None:
        pass

    def committed(self, plan: Plan) -> None:
        pass

    def reconnected(self) -> None:
        pass
