"""An order approval over HTTP: two people, a real service beside it, a process written in YAML, and a saga.

    python examples/steps_approval.py            # runs once and checks itself
    python examples/steps_approval.py --serve    # leaves the server running for you to try

Ann places an order. She may not approve it herself; Ben does, and within his request the order is confirmed at the
order service (examples/steps/service.py, called by its OpenAPI document) and the customer is told. A second order is
sold out, and takes the way for errors. A saga then delivers the first order and finds no courier: what it has done is
taken back, the last thing first. Everybody is who their headers say: the development identity, which works on
this machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx2

from holdfast import Context, DoNotRetry, Engine, Flow, Retry, load_steps
from holdfast.errors import HoldfastError
from holdfast.server import AuthSettings, ServerSettings, create_app, open_chain
from holdfast.server.http.listener import listening

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "steps"))

from service import DOCUMENT, running_service  # noqa: E402

FILE: Final = HERE / "steps" / "order_approval.yaml"
ANN: Final = {"X-Holdfast-Subject": "ann", "X-Holdfast-Roles": "seller"}
BEN: Final = {"X-Holdfast-Subject": "ben", "X-Holdfast-Roles": "approver"}
ELSEWHERE: Final = {"X-Holdfast-Subject": "eve", "X-Holdfast-Tenant": "another-company"}

DELIVERY: Final = (
    Flow("orders.delivery")
    .step("reserve", "reserve", undo="release")
    .step("charge", "charge", undo="refund")
    .step("ship", "ship", retry=Retry(attempts=2))
    .build()
)  # fmt: skip


async def did(ctx: Context, data: Any) -> Any:
    return data


async def no_courier(ctx: Context, order: Any) -> Any:
    raise DoNotRetry("There is no courier today.")


async def tell_the_story(client: httpx2.AsyncClient, service: Any) -> None:
    started = await place(client, "ord-123")
    print(f"Ann placed ord-123: {started['status']}, at the step {started['current_step']!r}")

    advance = f"/ui/workflows/{started['id']}/advance"
    refused = await client.post(advance, headers=ANN, json={"event": "approved"})
    assert refused.status_code == 403, refused.text
    print(f"Ann cannot approve it herself: {refused.json()['code']}")

    unseen = await client.get(f"/ui/workflows/{started['id']}", headers=ELSEWHERE)
    assert unseen.status_code == 404, unseen.text
    print("For another company it does not exist: 404")

    waiting = (await client.get("/ui/workflows", headers=BEN, params={"status": "active"})).json()
    assert started["id"] in str(waiting), waiting
    approval = {"event": "approved", "input": {"approval_notes": "Looks good"}}
    answer = await client.post(advance, headers={**BEN, "Idempotency-Key": "ben-1"}, json=approval)
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["status"], done["current_step"]) == ("completed", "approved"), done
    assert done["state"]["approved_by"] == "ben", done
    print(f"Ben approved it; confirmed at {done['state']['confirmed_at']}, all within his request")

    again = await client.post(advance, headers={**BEN, "Idempotency-Key": "ben-1"}, json=approval)
    assert again.status_code == 200, again.text
    assert (len(service.orders.notifications), service.orders.changes) == (1, 2)
    print("He sent it twice, and the service heard of it once")

    sold_out = await place(client, "ord-9-sold-out")
    answer = await client.post(f"/ui/workflows/{sold_out['id']}/advance", headers=BEN, json={"event": "approved"})
    assert answer.json()["current_step"] == "failed", answer.text
    print(f"A sold-out order took the way for errors: {answer.json()['state']['_last_error']['code']}")

    await tell_of_the_saga(client)

    print("Who did what with ord-123:")
    story = (await client.get(f"/ui/workflows/{started['id']}", headers=BEN)).json()["history"]
    for event in story:
        print(f"  {event['event']:<18} {event['step'] or '':<10} {event['actor']}")


async def tell_of_the_saga(client: httpx2.AsyncClient) -> None:
    wish = {"flow": "orders.delivery", "input": {"order_id": "ord-123"}}
    saga = (await client.post("/api/v1/instances", headers=ANN, json=wish)).json()
    async with client.stream("GET", f"/api/v1/instances/{saga['id']}/stream", headers=ANN) as events:
        async for line in events.aiter_lines():  # it ends with the instance
            assert not line.startswith("event: problem"), line
    steps = (await client.get(f"/api/v1/instances/{saga['id']}/steps", headers=ANN)).json()["items"]
    done = {step["name"]: step["status"] for step in steps if not step["name"].startswith("@")}
    assert {done[name] for name in ("reserve", "charge", "ship")} == {"rolled_back"}, done
    assert (done["refund"], done["release"]) == ("completed", "completed"), done
    print("Its delivery found no courier, and was taken back:", ", ".join(f"{n} {s}" for n, s in done.items()))


async def place(client: httpx2.AsyncClient, order: str) -> dict[str, Any]:
    order_input = {"order_id": order, "customer_email": "carla@example.com"}
    answer = await client.post("/ui/workflows/orders.approval/start", headers=ANN, json=order_input)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def run(*, serve: bool, port: int) -> None:
    async with AsyncExitStack() as stack:
        service = stack.enter_context(running_service())
        engine = await stack.enter_async_context(Engine())
        engine.openapi("orders", DOCUMENT, base_url=service.url)
        for workflow in load_steps(FILE.read_text(), name=FILE.name).workflows:
            await engine.publish(workflow)
        await engine.publish(DELIVERY)
        for name in ("reserve", "release", "charge", "refund"):
            engine.register(name, did)
        engine.register("ship", no_courier)
        await stack.enter_async_context(engine.worker())
        chain = await stack.enter_async_context(
            open_chain(AuthSettings(development=True), engine.dsn, listen_host="127.0.0.1", org=engine.org)
        )
        app = create_app(engine, ServerSettings(port=port), authenticate=chain)
        url = await stack.enter_async_context(listening(app, "127.0.0.1", port))
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
            await tell_the_story(client, service)
        if serve:
            print(f"The server listens at {url}; its routes are described at {url}/openapi.json. Ctrl-C ends it.")
            await asyncio.Event().wait()
    print("Two people, one approval, nothing done twice.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="leave the server running")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: any port that is free")
    arguments = parser.parse_args()
    try:
        asyncio.run(run(serve=arguments.serve, port=arguments.port))
    except HoldfastError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
