"""A document that three people review, each on their own, with what they did kept beside its way.

    python examples/machines_document.py

    Draft ── Submit ── InReview ──┬─ Accept ── Published
                           └──── InRevision ◁─ ReturnToAuthor

A review is work of the application, not of the machine: an activity, one per reviewer and entry. Only when all have
spoken does the review desk send the next event. What was said in an earlier round is frozen. In the end everything is
one document, and a page of HTML. It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from holdfast import ConsumerEvent, Engine, Lifecycle, Machine
from holdfast.errors import Conflict

MACHINES = Path(__file__).parent / "machines"
RUN = uuid4().hex[:8]  # a document of its own for each run of this program
REF = f"D-1/{RUN}"
WORK = "Review"


# --- the review desk --------------------------------------------------------------------------------------------------


class ReviewDesk:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        service = engine.consumer("reviews", env="prod", definitions=["document"])
        service.hook("DOCUMENT.REVIEW")(self.ask)
        service.on("InRevision")(self.close_round)

    async def ask(self, event: ConsumerEvent) -> None:
        """Ask every reviewer of the policy. A fact may come twice, and must not undo what was said meanwhile."""
        known = {a.actor for a in await self.engine.activities(event.instance) if a.entry == event.lifecycle}
        for reviewer in event.params[0].data["reviewers"]:
            if reviewer in known:
                continue
            await self.engine.activity(event.instance, WORK, status="Asked", by=reviewer, entry=event.lifecycle)

    async def close_round(self, event: ConsumerEvent) -> None:
        """Freeze what was said in the round that is over."""
        for activity in await self.engine.activities(event.instance):
            if activity.entry == event.lifecycle - 1:
                await self.engine.freeze_activity(event.instance, activity.id, by="reviews")

    async def vote(self, reviewer: str, status: str, note: str) -> None:
        """Record a review; the last one of the round sends the event."""
        stands = await self.engine.machine("prod", "document", REF)
        round_ = stands.lifecycle
        await self.engine.activity(stands.id, WORK, status=status, by=reviewer, entry=round_, data={"note": note})
        said = [a.status for a in await self.engine.activities(stands.id) if a.entry == round_]
        print(f"    {reviewer}: {status}, {note}")
        if "Asked" not in said:
            event = "Accept" if set(said) == {"Approved"} else "ReturnToAuthor"
            done = await self.engine.trigger("prod", "document", REF, event, by=reviewer, expected=round_)
            print(f"That was the last review: {done.from_state} → {done.to_state}")


# --- the story --------------------------------------------------------------------------------------------------------


async def submit(engine: Engine, pages: int) -> str:
    answer = await engine.trigger("prod", "document", REF, "Submit", {"pages": pages}, by="carl")
    await engine.drain(timeout=60)  # the reviewers have been asked
    asked = [a.actor for a in await engine.activities(answer.instance) if a.entry == answer.lifecycle]
    print(f"Carl submits {pages} pages; asked: {', '.join(asked)}")
    return answer.instance


def tell(document: Lifecycle) -> None:
    for entry in document.entries:
        print(f"    {entry.number} {entry.to_state}" + (f", {entry.event} by {entry.actor}" if entry.event else ""))
        for activity in entry.activities:
            kept = ", frozen" if activity.frozen else ""
            print(f"        {activity.name} of {activity.actor}: {activity.status}{kept}")


async def main() -> None:
    machine = Machine.load(MACHINES / "document_review.blueprint.json", MACHINES / "document_review.policy.json")
    async with Engine() as engine:
        await engine.import_machine(machine)
        desk = ReviewDesk(engine)
        async with engine.worker():
            await engine.drain(timeout=60)  # the consumer is registered
            document = await submit(engine, 12)
            await desk.vote("ann", "Approved", "reads well")
            await desk.vote("ben", "Returned", "page 3 is wrong")
            await desk.vote("eve", "Approved", "nothing to add")
            await engine.drain(timeout=60)

            [late] = [a for a in await engine.activities(document) if a.actor == "ben"]
            try:
                await engine.set_activity(document, late.id, status="Approved")
            except Conflict as refusal:
                print(f"Ben cannot unsay it: {refusal.code}")

            await submit(engine, 13)
            for reviewer in ("ann", "ben", "eve"):
                await desk.vote(reviewer, "Approved", "fine now")
            await engine.drain(timeout=60)
        print("Its life:")
        tell(await engine.lifecycle(document))
        write_page(document, engine.dsn)


def write_page(instance: str, dsn: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "document.html"
        command = [sys.executable, "-m", "holdfast.cli", "lifecycle", instance, "--html", str(page)]
        subprocess.run(command, check=True, env=os.environ | {"HOLDFAST_DSN": dsn})  # noqa: S603 - our own command
        text = page.read_text()
    assert REF in text
    assert "page 3 is wrong" in text
    print("The same as a page of HTML: holdfast lifecycle ID --html document.html")


if __name__ == "__main__":
    asyncio.run(main())
