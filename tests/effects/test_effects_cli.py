"""`holdfast effects` and the example, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from effect_flows import flow, options, run
from effect_servers import Receiver

from holdfast import Engine

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


def command(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOLDFAST_DSN": dsn},
    )


def holdfast(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command(dsn, "-m", "holdfast.cli", "effects", *arguments)


async def test_an_operator_looks_and_replays(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    effect = await run(engine, flow(config={"url": receiver.url("/status/404")}))

    listed = holdfast(engine.dsn, "list", effect.instance_id)
    assert f"{effect.id}  dead_letter" in listed.stdout, listed.stderr
    assert "EFFECT_HTTP_STATUS" in listed.stdout
    everywhere = holdfast(engine.dsn, "list", "--status", "dead_letter", "--kind", "webhook", "--flow", "told")
    assert everywhere.stdout == listed.stdout
    assert json.loads(holdfast(engine.dsn, "list", "--status", "completed", "--json").stdout) == []
    assert "no such effects" in holdfast(engine.dsn, "list", "--after", effect.id).stdout
    narrowed = holdfast(engine.dsn, "list", effect.instance_id, "--kind", "webhook")
    assert (narrowed.returncode, "FILTER_INVALID" in narrowed.stderr) == (6, True)
    shown = json.loads(holdfast(engine.dsn, "show", effect.id, "--json").stdout)
    assert (shown["status"], shown["evidence"]["status"]) == ("dead_letter", 404)
    unknown = holdfast(engine.dsn, "show", effect.instance_id)
    assert (unknown.returncode, "EFFECT_UNKNOWN" in unknown.stderr) == (4, True)

    replayed = holdfast(engine.dsn, "replay", effect.id, "--by", "ann", "--reason", "try again", "--json")
    assert json.loads(replayed.stdout) == {"replayed": [effect.id]}
    assert (await engine.effects(effect.instance_id))[0].status == "pending"
    again = holdfast(engine.dsn, "replay", effect.id)
    assert (again.returncode, "EFFECT_NOT_DEAD" in again.stderr) == (5, True)


def test_the_example_books_once(holdfast_dsn: str) -> None:
    for _ in range(2):
        done = command(holdfast_dsn, str(ROOT / "examples" / "webhook.py"))
        assert done.returncode == 0, done.stderr
        assert "completed: delivered at attempt 3, booked 1 time" in done.stdout
