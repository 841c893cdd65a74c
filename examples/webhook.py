"""A flow that tells a shop about a payment: signed, repeated until the shop has understood, and verified there.

    python examples/webhook.py

The shop is a web server in this process. It is down for the first two requests, and it remembers the keys it has seen:
whatever happens between the two, the payment is booked once.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from holdfast import EffectOptions, Engine, Graph, webhooks
from holdfast.graph.model import Edge, Node, Retry

SECRET: Final = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()


class Shop(BaseHTTPRequestHandler):
    """What a receiver does: verify the raw bytes, look whether the key is new, act, answer."""

    requests = 0
    booked: Final[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        key = webhooks.verify(dict(self.headers.items()), body, SECRET)
        Shop.requests += 1
        if Shop.requests > 2:
            Shop.booked.setdefault(key, body)
        self.send_response(200 if Shop.requests > 2 else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        print(f"  shop: {format % args}")


@contextmanager
def running_shop() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


RETRY: Final = Retry(calls=5, delay=0.2, backoff="exponential", jitter=0.5)
PAYMENT: Final = Graph(
    name="payment",
    entry="start",
    nodes=(
        Node(id="start", kind="start"),
        Node(id="tell", kind="effect", handler="webhook", awaits=True, retry=RETRY, config={"type": "order.paid"}),
        Node(id="done", kind="end"),
    ),
    edges=(Edge(id="a", source="start", target="tell"), Edge(id="b", source="tell", target="done")),
)


async def main() -> None:
    with running_shop() as shop:
        async with Engine() as engine:
            engine.effect_options = EffectOptions(allow=(shop,), secrets=lambda _org, _name: SECRET)
            await engine.publish(PAYMENT)
            order = {"url": f"http://{shop}/hook", "body": {"order": 17, "amount": "12.50"}}
            async with engine.worker():
                instance = await engine.start("payment", order)
                instance = await engine.wait(instance.id, timeout=30)
            [effect] = await engine.effects(instance.id)
    print(f"{instance.status}: delivered at attempt {effect.attempts}, booked {len(Shop.booked)} time")
    for key, body in Shop.booked.items():
        print(f"  {key}: {body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
