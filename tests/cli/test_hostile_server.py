"""A check that takes long holds up neither the server nor its end: a real process, over HTTP, told to stop."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
from cli_flows import told
from cli_process import until
from cli_server import running
from tests.schema_attacks import COSTLY

ATTACK = COSTLY["references by anchors"]
FLOW: dict[str, Any] = {
    "name": "hostile",
    "entry": "ask",
    "policy": {"data": "context"},
    "nodes": [
        {"id": "ask", "kind": "human", "form": ATTACK.schema},
        {"id": "end", "kind": "end"},
    ],
    "edges": [{"id": "yes", "source": "ask", "target": "end", "on": "confirmed"}],
}
WHO = {"X-Holdfast-Subject": "olga", "X-Holdfast-Roles": "operator,publisher"}


def test_a_server_answers_and_ends_while_checks_take_long(holdfast_dsn: str, tmp_path: Path) -> None:
    told(holdfast_dsn, "db", "migrate")
    words = ("up", "--dir", str(tmp_path), "--port", "0", "--json", "--dsn", holdfast_dsn)
    with (
        running(tmp_path / "log", *words) as up,
        httpx2.Client(base_url=up.url, headers=WHO, trust_env=False) as client,
    ):
        published = client.post("/api/v1/definitions", json=FLOW)
        assert published.is_success, published.text
        id = client.post("/api/v1/instances", json={"flow": "hostile"}).json()["id"]
        tasks: list[Any] = []

        def is_asked() -> bool:
            tasks[:] = client.get("/api/v1/tasks", params={"instance": id}).json()["items"]
            return bool(tasks)

        until(is_asked, "the task")

        def decide() -> tuple[int, str]:
            body = {"decision": "confirmed", "data": ATTACK.data}
            try:
                answer = httpx2.post(
                    f"{up.url}/api/v1/tasks/{tasks[0]['id']}/decide",
                    json=body,
                    headers=WHO,
                    trust_env=False,
                    timeout=60,
                )
            except httpx2.TransportError:
                return 0, "the server has gone"
            return answer.status_code, answer.json()["code"]

        assert decide() == (422, "SCHEMA_TOO_COSTLY")
        with ThreadPoolExecutor(6) as threads:
            under_way = [threads.submit(decide) for _ in range(6)]
            until(lambda: _checks(up.process.pid) > 0, "a helper at work")
            begin = time.monotonic()
            assert client.get("/health/live").is_success
            assert client.get(f"/api/v1/instances/{id}").json()["status"] == "running"
            assert time.monotonic() - begin < 10, "nobody else waits"
            assert up.ends(signal.SIGTERM) == 0
            answers = {one.result() for one in under_way}
        assert answers <= {(422, "SCHEMA_TOO_COSTLY"), (503, "SCHEMA_CHECK_BUSY"), (0, "the server has gone")}, answers


def _checks(pid: int) -> int:
    """Helpers of the process that are running, as the kernel sees them."""
    found = 0
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            state = Path(f"/proc/{child}/stat")
            found += state.exists() and state.read_text().rpartition(")")[2].split()[0] == "R"
    return found
