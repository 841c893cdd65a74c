"""The whole OpenAPI document against the application: what it says is what happens, whatever is sent.

All phases and all checks of Schemathesis, in this process, on a real database. The short profile has a fixed seed;
`HOLDFAST_PROFILE=long` sends at least 50,000 cases with a seed of its own, which a failure names, and writes its
figures into docs/reliability.md. Half of the ids are those of things that exist.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from openapi_house import TOKEN, House
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.python import asgi
from schemathesis.schemas import BaseSchema

from faults import report
from holdfast.testing import copied_database

LONG = os.environ.get("HOLDFAST_PROFILE", "short") == "long"
SEED = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(2**31) if LONG else 5))
WANTED = 50_000
MOST_TOLD = 20
REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "412", "413", "414", "415", "422", "428", "429", "431"]
OF_THE_WORLD = ["404", "409", "412", "422"]  # what fits the document may still not fit what is stored
HINTS = {  # words that mean something to the routes, now and then
    "path.name": ["order", "orders.approval"],  # a flow, a machine, a consumer
    "path.workflow_id": ["order", "orders.approval", "expenses"],
    "path.version": [1],
    "path.environment": ["prod"],
    "path.request_id": ["r-1"],
    "query.environment": ["prod"],
    "query.external_ref": ["o-1", "o-2"],
    "body.environment": ["prod"],
    "body.external_ref": ["o-1", "o-2"],
    "body.request_id": ["r-1"],
    "body.outcome": ["delivered", "processed", "failed", "retry"],
    "query.flow": ["order", "orders.approval"],
    "query.workflow_id": ["orders.approval"],
    "query.status": ["active", "running", "completed"],
    "body.flow": ["order", "orders.approval", "expenses"],
    "body.event": ["approved", "rejected", "completed"],
    "body.decision": ["confirmed", "rejected"],
    "body.from_step": ["ask", "do"],
}
CONFIG = {
    "seed": SEED,
    "continue-on-failure": True,
    "headers": {"Authorization": f"Bearer {TOKEN}"},
    "request-timeout": 60,
    "cache": {"enabled": False},
    "dictionaries": {place: {"values": words} for place, words in HINTS.items()},
    "parameters": {place: {"dictionary": place, "probability": 0.4} for place in HINTS},
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", *OF_THE_WORLD]},
        "negative_data_rejection": {"expected-statuses": REFUSALS},
    },
    "phases": {
        "examples": {"enabled": True},
        "coverage": {"enabled": LONG},
        "fuzzing": {"generation": {"max-examples": 1200 if LONG else 2}},
        "stateful": {"enabled": LONG, "generation": {"max-examples": 1000}},
    },
    "generation": {"mode": "all", "deterministic": not LONG, "database": "none", "no-shrink": not LONG},
}


@schemathesis.check
def what_the_document_allows_is_understood(ctx: CheckContext, response: Response, case: Case) -> None:
    """A request that fits the document is never told that its form is wrong."""
    if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE and response.status_code == 422:
        assert response.json()["code"] != "REQUEST_INVALID", response.text[:500]


@pytest.fixture
def house(holdfast_server: str) -> Iterator[House]:
    with copied_database(holdfast_server) as database:
        yield House(database.dsn)
        asgi.shutdown_lifespans()


@pytest.fixture
def schema(house: House) -> BaseSchema:
    schema = schemathesis.openapi.from_asgi("/openapi.json", house, config=SchemathesisConfig.from_dict(CONFIG))

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        return {name: _met(house, name, value) for name, value in (path_parameters or {}).items()}

    @schema.hook
    def map_body(context: Any, body: Any) -> Any:
        """Letters that are put back together are named in the body."""
        try:
            met: list[Any] = [_met(house, "letter_id", id) for id in body["ids"]]
            is_as_before = len(set(map(str, met))) == len(body["ids"])
        except (KeyError, TypeError):
            return body
        return {**body, "ids": met} if is_as_before else body

    return schema


def _met(house: House, name: str, value: Any) -> Any:
    """Every second id that could be one is one."""
    ids = house.known.get(name)
    try:
        number = UUID(value).int
    except (ValueError, AttributeError, TypeError):
        return value
    return ids[number // 2 % len(ids)] if ids and number % 2 else value


# The loop of the application draws random numbers while Hypothesis watches that nobody does.
@pytest.mark.filterwarnings("ignore:Do not use the .random. module")
def test_the_server_does_what_the_document_says(schema: BaseSchema) -> None:
    sent: Counter[str] = Counter()
    done: Counter[str] = Counter()
    broken, began = 0, time.monotonic()
    found: list[str] = []
    for event in from_schema(schema).execute():
        if isinstance(event, ScenarioFinished):
            answers = list(_answers(event.recorder))
            sent.update(node.value.operation.label for node in event.recorder.cases.values())
            done.update(operation for operation, status in answers if status < 300)
            broken += sum(status >= 500 for _, status in answers)
            found += _failures(event.recorder)
        elif isinstance(event, NonFatalError | FatalError):
            found.append(str(event))
    if LONG:
        figures = _figures(sent, broken, len(found))
        report.write_page(figures, {"took": f"{(time.monotonic() - began) / 60:.0f} minutes"}, "openapi")
    assert not found, f"seed {SEED}: {len(found)} failures\n\n" + "\n\n".join(found[:MOST_TOLD])
    assert set(sent) == {result.ok().label for result in schema.get_all_operations()}
    assert sent.total() >= (WANTED if LONG else len(sent))
    assert not LONG or set(done) == set(sent), f"seed {SEED}: never done: {set(sent) - set(done)}"


def _answers(recorder: ScenarioRecorder) -> Iterator[tuple[str, int]]:
    for id, node in recorder.cases.items():
        answer = recorder.find_response(case_id=id)
        if answer is not None:
            yield node.value.operation.label, answer.status_code


def _figures(sent: Counter[str], broken: int, failed: int) -> list[report.Figure]:
    cases = f"{sent.total():,} cases for {len(sent)} operations"
    return [
        report.Figure("OpenAPI: cases", sent.total(), report.Bar("≥", WANTED), SEED, f"{len(sent)} operations"),
        report.Figure("OpenAPI: server errors", broken, report.NONE, SEED, cases),
        report.Figure("OpenAPI: checks of any kind that failed", failed, report.NONE, SEED, cases),
    ]


def _failures(recorder: ScenarioRecorder) -> list[str]:
    told: list[str] = []
    for case, checks in recorder.checks.items():
        for check in checks:
            if check.status is not Status.SUCCESS and check.failure_info is not None:
                answer = recorder.find_response(case_id=case)
                body = "" if answer is None else f"{answer.status_code} {answer.text[:500]}"
                told.append(f"{check.name}: {check.failure_info.failure}\n{check.failure_info.code_sample}\n{body}")
    return told
