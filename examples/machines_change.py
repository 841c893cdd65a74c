"""A change request that nobody answers: reminders, an escalation, and an end.

    python examples/machines_change.py

    Drafted ── Submit ── InReview ─┬─ Approve ── Scheduled ── Finish ── Done
                          ↻ Remind └─ Escalate ── Escalated ── Lapse ── Lapsed

Three timeouts, each of another kind. In `InReview` one repeats: its event leads back to the same state, and each time
consumers are told. In `Escalated` one happens once and moves the request. In `Scheduled` one has no event: nothing
moves, and operators get a notice. The policy says days; here each timeout is one second. It runs on the database of
HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast import ConsumerEvent, Engine, Machine, Notice, Trigger

MACHINES = Path(__file__).parent / "machines"
RUN = uuid4().hex[:8]  # requests of their own for each run of this program
FORGETFUL = {"CR-1": True, "CR-2": False}  # Ben only needs to be reminded; nobody ever looks at CR-2

warned = asyncio.Event()


def ref(request: str) -> str:
    return f"{request}/{RUN}"


def name(event: ConsumerEvent) -> str:
    return event.external_ref.split("/")[0]


def hurried(file: Path) -> dict[str, Any]:
    policy = json.loads(file.read_text())
    for timeout in policy["timeouts"]:
        timeout["timeout"] = "PT1S"
    return policy


# --- the service that reminds, and the one that looks on --------------------------------------------------------------


def reminders(engine: Engine) -> None:
    service = engine.consumer("reminders", env="prod", definitions=["change"], states=["InReview"])

    @service.on("InReview", via="Remind")
    async def remind(event: ConsumerEvent) -> Trigger | None:
        if not await event.is_current():
            return None  # somebody has answered meanwhile
        number, most = event.lifecycle - 1, event.params[0].data["at_most"]
        print(f"{name(event)}: reminder {number} of {most}, because of {event.actor}")
        if FORGETFUL[name(event)]:
            return Trigger("Approve", {"by": "ben"})
        return Trigger("Escalate", {"reminders": number}) if number >= most else None


def board(engine: Engine) -> None:
    service = engine.consumer("board", env="prod", definitions=["change"], states=["Escalated", "Lapsed"])

    @service.on("Escalated")
    async def invite(event: ConsumerEvent) -> None:
        members = " and ".join(event.params[0].data["members"])
        print(f"{name(event)}: escalated after {event.payload['reminders']} reminders; {members} are asked")

    @service.on("Lapsed")
    async def file(event: ConsumerEvent) -> None:
        print(f"{name(event)}: lapsed, because of {event.actor}")


# --- the story --------------------------------------------------------------------------------------------------------


async def submit(engine: Engine, request: str) -> str:
    answer = await engine.trigger("prod", "change", ref(request), "Submit", {"title": "A new firewall"}, by="ann")
    print(f"{request}: submitted by ann, now {answer.to_state}")
    return answer.instance


async def main() -> None:
    machine = Machine.load(MACHINES / "change_request.blueprint.json", hurried(MACHINES / "change_request.policy.json"))
    async with Engine() as engine:
        await engine.import_machine(machine)
        reminders(engine)
        board(engine)

        @engine.on_notice(codes=("STATE_STALE",))
        async def warn(notice: Notice) -> None:
            if not warned.is_set():
                print(f"Notice to operators: {notice.message}")
                warned.set()

        async with engine.worker():
            await engine.drain(timeout=60)  # the consumers are registered
            first = await submit(engine, "CR-1")
            await asyncio.wait_for(warned.wait(), 60)
            assert (await engine.machine("prod", "change", ref("CR-1"))).state == "Scheduled", "a notice moves nothing"
            await engine.trigger("prod", "change", ref("CR-1"), "Finish", by="ben")
            print(f"CR-1: finished by ben, {(await engine.wait(first, timeout=60)).status}")

            second = await submit(engine, "CR-2")
            await engine.wait(second, timeout=60)
            await engine.drain(timeout=60)  # the end is told as well
            entries = (await engine.lifecycle(second)).entries
        assert (entries[-1].to_state, entries[-1].actor) == ("Lapsed", "system")
        assert [entry.event for entry in entries].count("Remind") >= 2
    print("One was approved after a reminder, one lapsed: no cron job was involved.")


if __name__ == "__main__":
    asyncio.run(main())
