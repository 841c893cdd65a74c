"""Consumer of a server's facts: a process of its own, with nothing of the engine in it.

    from holdfast.consumer import Consumer, Trigger

    async with Consumer("https://holdfast.example", key, "billing", env="prod") as billing:

        @billing.on("Approved")
        async def book(event):
            return Trigger("Booked", {"invoice": 7})

        await billing.run()

The wire format is in docs/consumers.md.
"""

from holdfast.consumer import inbox
from holdfast.consumer.answers import Postpone, Trigger, Verdict
from holdfast.consumer.client import Consumer, ConsumerError, RemoteEvent
from holdfast.consumer.events import Event, Param
from holdfast.errors import DoNotRetry

__all__ = [
    "Consumer", "ConsumerError", "DoNotRetry", "Event", "Param", "Postpone", "RemoteEvent", "Trigger", "Verdict",
    "inbox",
]  # fmt: skip
