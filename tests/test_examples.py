"""The examples keep their word: each checks itself, and the demo kills a worker, counts, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.store import embedded

EXAMPLES = Path(__file__).parent.parent / "examples"
DEMO = EXAMPLES / "order.py"
TESTED_WITH_THEIR_SUBJECT = {"approval.py", "webhook.py"}
LAST_LINES = {
    "contracts_invoice.py": "invoice: three ways, nothing stored, and nobody was passed over.",
    "machines_change.py": "One was approved after a reminder, one lapsed: no cron job was involved.",
    "machines_document.py": "The same as a page of HTML: holdfast lifecycle ID --html document.html",
    "machines_loan.py": "Two loans were paid, each once.",
    "machines_services.py": "Nothing was lost, nothing was written twice, and every vendor's letters are in order.",
    "machines_vendor.py": "Three vendors checked once each, two registered, one rejected.",
    "sagas_approval.py": "Booked in the end: {'desk': 800}",
    "sagas_conditions.py": "Liens that stand: ['ben']",
    "sagas_dlq.py": "Repaired: {'sent': True, 'transferred': 120}",
    "sagas_ecommerce.py": "Everything is where it should be.",
    "sagas_pipeline.py": "One night loaded, one taken back.",
    "sagas_services.py": "Every step ran where its handler is.",
    "steps_approval.py": "Two people, one approval, nothing done twice.",
}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs_tells_its_story_and_checks_itself(name: str, holdfast_dsn: str) -> None:
    told = run(EXAMPLES / name, HOLDFAST_DSN=holdfast_dsn)
    assert LAST_LINES[name] in told.splitlines()[-1]


@pytest.mark.parametrize("name", ["machines_loan.py", "machines_vendor.py", "sagas_dlq.py"])
def test_an_example_can_be_repeated_on_the_same_database(name: str, holdfast_dsn: str) -> None:
    first, second = (run(EXAMPLES / name, HOLDFAST_DSN=holdfast_dsn) for _ in range(2))
    assert first == second


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Children of a job in the background would inherit that nobody listens to SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_the_server_of_the_demo_stays_until_it_is_told_to_leave(holdfast_dsn: str) -> None:
    """What `make demo SERVE=1` runs last."""
    words = [sys.executable, "-W", "error", "-u", str(EXAMPLES / "steps_approval.py"), "--serve"]
    around = {**os.environ, "HOLDFAST_DSN": holdfast_dsn}
    with subprocess.Popen(words, env=around, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            line = next(line for line in demo.stdout if line.startswith("The server listens at "))
            url = line.split()[4].rstrip(";")
            described = httpx2.get(f"{url}/openapi.json", trust_env=False).json()
            assert "/ui/workflows/{workflow_id}/start" in described["paths"]
            ann = {"X-Holdfast-Subject": "ann"}
            assert httpx2.get(f"{url}/ui/workflows", headers=ann, trust_env=False).json()["items"]
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 130
        finally:
            demo.kill()


def test_no_example_is_left_out() -> None:
    programs = {file.name for file in EXAMPLES.glob("*.py") if "__main__" in file.read_text()}
    assert programs == {*LAST_LINES, *TESTED_WITH_THEIR_SUBJECT, DEMO.name}


def test_the_demo_holds_what_it_says_and_can_be_repeated(home: Path) -> None:
    for _ in range(2):
        told = run(DEMO, "--orders", "100", HOLDFAST_HOME=str(home))
        assert "was killed with SIGKILL; it held" in told
        assert "Nothing was lost and nothing was done twice" in told
        assert str(home / "demo") in told
        assert embedded.status(home / "demo") is None
