"""Webhooks against a real server: what a good target sees, and what becomes of every kind of bad one."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from effect_flows import OLD_SECRET, SECRET, SECRETS, event_types, flow, options, run, visited
from effect_servers import Receiver

from holdfast import Engine, webhooks
from holdfast.graph.model import Retry
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio


async def deliver(engine: Engine, receiver: Receiver, path: str, *, awaits: bool = False, **config: Any) -> Any:
    engine.effect_options = options(receiver)
    return await run(engine, flow(awaits=awaits, config={"url": receiver.url(path), **config}))


async def test_a_good_target_gets_a_signed_request_once(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/ok?x=1", type="order.placed")

    [request] = receiver.requests
    assert (request.path, request.headers["host"]) == ("/ok?x=1", receiver.host)
    assert request.json["data"] == {"order": 17}
    assert request.json["type"] == "order.placed"
    assert request.key == request.headers["webhook-id"] == effect.key
    assert request.headers["holdfast-attempt"] == "1"
    assert webhooks.verify(request.headers, request.body, SECRET) == effect.key

    assert (effect.status, effect.attempts, effect.error) == ("completed", 1, None)
    assert effect.evidence["status"] == 200
    assert effect.evidence["headers"] == {
        "content-type": "application/json", "content-length": "48", "x-request-id": "r-1",
    }  # fmt: skip
    assert effect.evidence["body"] == f'{{"received": "{effect.key}"}}'
    assert await event_types(engine, effect) == ["effect_emitted", "effect_delivered"]
    assert (await engine.get(effect.instance_id)).status == "completed"


async def test_a_cookie_of_one_answer_goes_with_no_other_request(engine: Engine, receiver: Receiver) -> None:
    """The next request to the same place may be another tenant's."""
    engine.effect_options = options(receiver)
    sent = flow(config={"url": receiver.url("/ok")})
    await engine.publish(sent)
    async with engine.worker():
        for count in (1, 2):
            await engine.start(sent.name, {"order": 17})
            await until(lambda count=count: len(receiver.requests) == count)
            await engine.drain(timeout=30)
    assert not any("cookie" in request.headers for request in receiver.requests)


async def test_a_secret_is_changed_by_having_two_for_a_while(engine: Engine, receiver: Receiver) -> None:
    await deliver(engine, receiver, "/ok", secret="rotating")

    [request] = receiver.requests
    assert len(request.headers["webhook-signature"].split()) == 2
    assert webhooks.verify(request.headers, request.body, SECRET)
    assert webhooks.verify(request.headers, request.body, [OLD_SECRET])


async def test_a_target_that_fails_is_called_again_with_the_same_key_and_body(
    engine: Engine, receiver: Receiver
) -> None:
    effect = await deliver(engine, receiver, "/flaky/2")

    assert (effect.status, effect.attempts) == ("completed", 3)
    assert len(receiver.requests) == 3
    assert len({(r.key, r.body) for r in receiver.requests}) == 1
    assert [r.headers["holdfast-attempt"] for r in receiver.requests] == ["1", "2", "3"]
    assert await event_types(engine, effect) == [
        "effect_emitted", "effect_failed", "effect_failed", "effect_delivered",
    ]  # fmt: skip


async def test_attempts_are_spread_over_time_and_end_in_a_dead_letter(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    engine.effect_options = options(receiver)
    retry = Retry(calls=4, delay=60, backoff="exponential", jitter=0.5)
    effect = await run(engine, flow(retry=retry, config={"url": receiver.url("/status/503")}))
    pauses: list[float] = []
    for attempt in range(1, 4):
        assert (effect.status, effect.attempts) == ("failed", attempt)
        assert len(receiver.requests) == attempt
        now = evidence.ask("select holdfast.clock()")
        pauses.append((effect.next_attempt_at - now).total_seconds())  # type: ignore[operator]
        await advance(engine, seconds=pauses[-1] + 1)
        await engine.drain(timeout=30)
        [effect] = await engine.effects(effect.instance_id)

    for n, pause in enumerate(pauses):
        assert 30 * 2**n - 5 <= pause <= 60 * 2**n
    assert (effect.status, effect.attempts, len(receiver.requests)) == ("dead_letter", 4, 4)
    assert effect.error["code"] == "EFFECT_HTTP_STATUS"
    assert evidence.rows(
        "select source, reason, attempts, instance_id::text, envelope ->> 'key', worker is not null"
        " from holdfast.dead_letters where resolved_at is null"
    ) == [("effect", "EFFECT_HTTP_STATUS", 4, effect.instance_id, effect.key, True)]
    assert (await event_types(engine, effect))[-1] == "effect_dead"


async def test_a_target_may_say_when_to_come_again(engine: Engine, receiver: Receiver, evidence: Evidence) -> None:
    effect = await deliver(engine, receiver, "/busy/120")

    assert (effect.status, effect.attempts) == ("failed", 1)
    pause = (effect.next_attempt_at - evidence.ask("select holdfast.clock()")).total_seconds()
    assert 100 < pause <= 120
    await advance(engine, seconds=121)
    await engine.drain(timeout=30)
    assert (await engine.effects(effect.instance_id))[0].status == "completed"


@pytest.mark.parametrize(
    ("path", "code", "attempts", "status"),
    [
        ("/status/400", "EFFECT_HTTP_STATUS", 1, 400),
        ("/status/404", "EFFECT_HTTP_STATUS", 1, 404),
        ("/status/410", "EFFECT_HTTP_STATUS", 1, 410),
        ("/status/409", "EFFECT_HTTP_STATUS", 3, 409),
        ("/status/500", "EFFECT_HTTP_STATUS", 3, 500),
        ("/redirect", "EFFECT_REDIRECTED", 1, 302),
        ("/never", "EFFECT_TIMEOUT", 3, None),
        ("/garbage", "EFFECT_ANSWER_BROKEN", 3, None),
        ("/headers", "EFFECT_ANSWER_BROKEN", 3, None),
        ("/cut", "EFFECT_ANSWER_BROKEN", 3, 200),
    ],
)
async def test_a_bad_answer_has_a_type_and_leaves_evidence(
    engine: Engine, receiver: Receiver, path: str, code: str, attempts: int, status: int | None
) -> None:
    effect = await deliver(engine, receiver, path)

    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", code, attempts)
    assert len(receiver.requests) == attempts
    assert effect.evidence.get("status") == status
    events = [e for e in await engine.events(effect.instance_id) if e.type in ("effect_failed", "effect_dead")]
    assert [e.detail["code"] for e in events] == [code] * attempts
    assert events[-1].node == "tell"


async def test_a_redirect_is_not_followed_and_says_where_it_led(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/redirect")

    assert [r.path for r in receiver.requests] == ["/redirect"]
    assert effect.evidence["headers"]["location"] == receiver.url("/ok")


async def test_an_answer_that_never_ends_is_cut_off(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    graph = flow(retry=Retry(calls=1), timeout=0.6, config={"url": receiver.url("/drip")})
    began = time.monotonic()
    effect = await run(engine, graph)

    assert (effect.status, effect.error["code"]) == ("dead_letter", "EFFECT_TIMEOUT")
    assert time.monotonic() - began < 10


async def test_a_target_that_is_not_there(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver, allow=("127.0.0.1",))
    effect = await run(engine, flow(config={"url": "http://127.0.0.1:1/"}))

    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_UNREACHABLE", 3)


async def test_of_a_huge_answer_only_the_beginning_is_read(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/huge")

    assert effect.status == "completed"
    assert effect.evidence["truncated"] is True
    assert effect.evidence["body"] == "x" * 4096


@pytest.mark.parametrize("path", ["/binary", "/strange"])
async def test_an_answer_that_cannot_be_stored_is_kept_as_far_as_it_can(
    engine: Engine, receiver: Receiver, path: str
) -> None:
    effect = await deliver(engine, receiver, path, awaits=True)

    assert effect.status == "completed"
    assert await visited(engine, effect) == ["start", "tell", "done"]
    [step] = [s for s in await engine.steps(effect.instance_id) if s.name == "tell"]
    assert step.output == {"status": 200, "body": None, "truncated": False}


async def test_a_node_that_waits_continues_with_the_answer(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/flaky/1", awaits=True)

    assert effect.awaited
    instance = await engine.get(effect.instance_id)
    assert (instance.status, instance.data) == ("completed", {"status": 200, "body": {"try": 2}, "truncated": False})
    assert await visited(engine, effect) == ["start", "tell", "done"]


async def test_a_node_that_waits_takes_the_error_edge(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/status/404", awaits=True)

    assert effect.status == "dead_letter"
    assert await visited(engine, effect) == ["start", "tell", "sorry"]
    [step] = [s for s in await engine.steps(effect.instance_id) if s.name == "tell"]
    assert (step.status, step.error["code"]) == ("failed", "EFFECT_HTTP_STATUS")


async def test_a_node_that_does_not_wait_moves_on_whatever_happens(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/status/404")

    assert effect.status == "dead_letter"
    assert (await engine.get(effect.instance_id)).status == "completed"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:{port}/ok", "EFFECT_TARGET_FORBIDDEN"),
        ("https://127.0.0.1:{port}/ok", "EFFECT_TARGET_FORBIDDEN"),
        ("https://localhost:{port}/ok", "EFFECT_TARGET_FORBIDDEN"),
        ("https://[::ffff:127.0.0.1]:{port}/ok", "EFFECT_TARGET_FORBIDDEN"),
        ("https://2130706433:{port}/ok", "EFFECT_TARGET_INVALID"),
        ("file:///etc/passwd", "EFFECT_TARGET_INVALID"),
        ("not an address", "EFFECT_TARGET_INVALID"),
        (None, "EFFECT_TARGET_INVALID"),
        (17, "EFFECT_TARGET_INVALID"),
    ],
)
async def test_a_target_that_is_not_allowed_is_never_called(
    engine: Engine, receiver: Receiver, url: Any, code: str
) -> None:
    engine.effect_options = options(receiver, allow=())
    spelled = url.format(port=receiver.port) if isinstance(url, str) else url
    effect = await run(engine, flow(config={"url": spelled}))

    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", code, 1)
    assert receiver.requests == []


async def test_a_name_that_changes_its_address_after_the_check_gains_nothing(
    engine: Engine, receiver: Receiver
) -> None:
    """Resolved once per delivery: what is connected to is what was checked."""
    answers = [["93.184.215.14"], ["127.0.0.1"], ["127.0.0.1"]]
    asked: list[str] = []

    async def rebinding(host: str, _: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    engine.effect_options = options(receiver, allow=(), resolve=rebinding, connect_timeout=0.2)
    url = f"https://rebind.example:{receiver.port}/ok"
    effect = await run(engine, flow(retry=Retry(calls=2), config={"url": url}))

    assert effect.error["code"] == "EFFECT_TARGET_FORBIDDEN"  # the second attempt; the first went nowhere
    assert asked == ["rebind.example"] * 2
    assert receiver.requests == []


async def test_the_address_and_the_body_may_come_with_the_data(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    data = {"url": receiver.url("/ok"), "body": {"hello": "world"}}
    effect = await run(engine, flow(config={"envelope": False}), data)

    assert effect.status == "completed"
    assert effect.target == receiver.host
    assert receiver.requests[0].json == {"hello": "world"}


async def test_secrets_are_in_no_row_and_no_log(
    engine: Engine, receiver: Receiver, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": {"secret": "token", "prefix": "Bearer "}, "X-Plain": "plain"}
    effect = await deliver(engine, receiver, "/echo", awaits=True, secret="rotating", headers=headers)

    assert receiver.requests[0].headers["authorization"] == f"Bearer {SECRETS['token']}"
    assert receiver.requests[0].headers["x-plain"] == "plain"
    assert "***" in effect.evidence["body"]
    dump = caplog.text
    for table in ("effects", "events", "steps", "instances", "dead_letters", "signals", "definitions"):
        dump += str(evidence.rows(f"select t::text from holdfast.{table} t"))  # type: ignore[arg-type]
    for secret in SECRETS.values():
        for part in secret.split():
            assert part not in dump
            assert part.replace("/", "\\/") not in dump


async def test_a_secret_is_not_sent_where_the_data_says(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    headers = {"Authorization": {"secret": "token"}}
    effect = await run(engine, flow(config={"headers": headers}), {"url": receiver.url("/ok"), "body": 1})

    assert (effect.status, effect.error["code"]) == ("dead_letter", "EFFECT_CONFIG_INVALID")
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("config", "code", "attempts"),
    [
        ({"secret": "../HOLDFAST_DSN"}, "EFFECT_CONFIG_INVALID", 1),
        ({"secret": "token"}, "WEBHOOK_SECRET_INVALID", 3),
        ({"headers": {"host": "elsewhere"}}, "EFFECT_CONFIG_INVALID", 1),
        ({"headers": {"webhook-signature": "v1,x"}}, "EFFECT_CONFIG_INVALID", 1),
        ({"headers": {"x-a": "1\r\nx-b: 2"}}, "EFFECT_CONFIG_INVALID", 1),
        ({"headers": {"x a": "1"}}, "EFFECT_CONFIG_INVALID", 1),
        ({"headers": {"x-a": 1}}, "EFFECT_CONFIG_INVALID", 1),
        ({"headers": ["x"]}, "EFFECT_CONFIG_INVALID", 1),
    ],
)
async def test_what_is_not_set_up_properly_is_not_sent(
    engine: Engine, receiver: Receiver, config: dict[str, Any], code: str, attempts: int
) -> None:
    effect = await deliver(engine, receiver, "/ok", **config)

    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", code, attempts)
    assert receiver.requests == []


async def test_a_worker_without_the_secret_leaves_the_effect_to_one_that_has_it(
    engine: Engine, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """No attempt is used up, a log line says what is lacking, doctor names it; who has it delivers at once."""
    left = await deliver(engine, receiver, "/ok", secret="unknown")
    assert (left.status, left.error["code"], left.attempts) == ("pending", "EFFECT_SECRET_MISSING", 0)
    [line] = [record.getMessage() for record in caplog.records if "is left to a worker" in record.getMessage()]
    assert left.id in line
    assert "'unknown'" in line
    assert receiver.requests == []

    [finding] = [f for f in (await engine.doctor()).findings if f.code == "effects_left"]
    assert (finding.severity, finding.subject) == ("warning", "webhook")
    assert "'unknown'" in finding.message

    async with Engine(engine.dsn) as other:
        other.effect_options = options(receiver, secrets=lambda _org, _name: SECRETS["webhook"])
        await other.drain(timeout=30)
    [effect] = await engine.effects(left.instance_id)
    assert (effect.status, effect.attempts, len(receiver.requests)) == ("completed", 1, 1)
    assert [f.severity for f in (await engine.doctor()).findings if f.code == "effects_left"] == ["ok"]


async def test_what_is_left_holds_up_nobody_else_at_the_target(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    """Another organisation's effects to the same host go on, in the very process that lacks a secret of the first."""
    have = options(receiver).secrets
    engine.effect_options = options(receiver, secrets=lambda org, name: have(org, name) if org == "acme" else None)
    for org in ("default", "acme"):
        mine = engine.for_org(org)
        await mine.publish(flow(config={"url": receiver.url("/ok")}))
        for _ in range(3):
            await mine.start("told", {})
    await engine.drain(timeout=30)
    assert len(receiver.requests) == 3
    rows = evidence.rows("select org_id, status, attempts from holdfast.effects")
    assert sorted(rows) == [("acme", "completed", 1)] * 3 + [("default", "pending", 0)] * 3


async def test_unsigned_only_when_it_says_so(engine: Engine, receiver: Receiver) -> None:
    effect = await deliver(engine, receiver, "/ok", signed=False)

    assert effect.status == "completed"
    assert "webhook-signature" not in receiver.requests[0].headers


async def test_proxies_of_the_environment_are_ignored(
    engine: Engine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await deliver(engine, receiver, "/ok")).status == "completed"
