"""`webhook`, `mail` and `call` as the builder writes them: run, printed back, drawn, refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from effect_flows import SECRET, options
from effect_servers import Mailbox, Receiver

from holdfast import Branch, DoNotRetry, Engine, Flow, Retry, Undo, picture_of, webhooks
from holdfast.doors.saga.lowering import lower
from holdfast.doors.saga.model import Definition
from holdfast.doors.saga.printing import code_of
from holdfast.doors.saga.source import read_source
from holdfast.errors import DefinitionError
from holdfast.graph import model
from holdfast.payloads import decode, encode
from holdfast.runtime.effects.delivery import DEFAULT_RETRY
from holdfast.runtime.effects.options import EffectOptions, Smtp
from running import Evidence

pytestmark = pytest.mark.anyio


async def book(ctx: Any, data: Any) -> Any:
    if ctx.attempt == 1:
        raise ValueError("not yet")
    await ctx.conn.execute("insert into public.booked values (%s)", (data["number"],))
    return {"booked": data["number"]}


def keep(ctx: object, data: Any) -> Any:
    return data


def fail(ctx: object, data: Any) -> Any:
    raise DoNotRetry("no")


async def run(engine: Engine, flow: Flow, data: Any) -> Any:
    built = flow.build()
    await engine.publish(built)
    started = await engine.start(built.name, data)
    await engine.drain(timeout=30)
    return await engine.get(started.id)


async def test_a_webhook_is_signed_and_the_flow_goes_on_with_what_it_had(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    flow = (
        Flow("order")
        .webhook("tell", receiver.url("/ok"), type="order.paid", input={"number": "input.id"}, headers={"X-Shop": "17"})
        .step("keep", keep)
    )
    done = await run(engine, flow, {"id": 4, "card": "secret"})
    [request] = receiver.requests
    assert (request.json["type"], request.json["data"]) == ("order.paid", {"number": 4})
    assert request.headers["x-shop"] == "17"
    assert webhooks.verify(request.headers, request.body, SECRET)
    assert (done.status, done.data) == ("completed", {"id": 4, "card": "secret"})


async def test_a_webhook_that_is_awaited_goes_on_with_the_answer(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    done = await run(engine, Flow("order").webhook("ask", receiver.url("/ok"), awaits=True, deadline=60), {"id": 4})
    assert (done.status, done.data["status"]) == ("completed", 200)


async def test_attempts_that_are_out_fail_the_step_and_undo_what_was(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    flow = (
        Flow("order")
        .step("keep", keep, undo=Undo(keep, name="release"))
        .webhook("ask", receiver.url("/status/500"), awaits=True, retry=Retry(attempts=2, delay=0))
    )
    done = await run(engine, flow, {"id": 4})
    assert (done.status, len(receiver.requests)) == ("failed", 2)
    assert "release" in [step.name for step in await engine.steps(done.id)]


async def test_a_mail_has_what_was_said_and_what_came(engine: Engine, mail_server: tuple[Mailbox, int]) -> None:
    mailbox, port = mail_server
    engine.effect_options = EffectOptions(
        smtp=Smtp(host="127.0.0.1", port=port, security="plain", sender="Shop <shop@example.org>")
    )
    flow = Flow("order").mail(
        "thank", sender="Desk <desk@example.org>", subject="Thank you", bcc=("eve@example.org",),
        input={"to": "input.email", "text": "input.note"},
    )  # fmt: skip
    await run(engine, flow, {"email": "ann@example.org", "note": "See you"})
    [mail] = mailbox.mails
    assert (mail["From"], mail["To"], mail["Subject"]) == ("Desk <desk@example.org>", "ann@example.org", "Thank you")
    assert mail.get_content().splitlines() == ["See you"]
    assert mailbox.recipients == [["ann@example.org", "eve@example.org"]]


async def test_a_call_runs_in_the_transaction_and_is_undone(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("create table public.booked (number int)")
    evidence.connection.execute("grant insert on public.booked to holdfast_worker")
    flow = (
        Flow("order")
        .call(
            "book",
            book,
            undo=Undo(keep, name="cancel"),
            retry=Retry(attempts=2),
            input={"number": "input.id"},
            output={"number": "response.booked"},
        )
        .step("fail", fail)
    )
    done = await run(engine, flow, {"id": 4})
    steps = {step.name: step for step in await engine.steps(done.id)}
    assert (done.status, steps["book"].output, steps["book"].attempts) == ("failed", {"number": 4}, 2)
    assert steps["cancel"].status == "completed"
    assert evidence.ask("select array_agg(number) from public.booked") == [4]
    assert "book" in engine.calls.names()
    assert "book" not in engine.handlers.names()  # a function is known as what the flow calls it as


def parts() -> Flow:
    url = "https://shop.example/hook"
    secret = {"Authorization": {"secret": "token", "prefix": "Bearer "}}
    inner = Branch().mail("thank", to=["ann@example.org", "bob@example.org"], subject="Hi", text="there")
    return (
        Flow("parts")
        .webhook("tell", url, type="order.paid", secret="shop", headers=secret, input={"id": "input.id"})
        .webhook("ask", url, signed=False, envelope=False, awaits=True, deadline=60, retry=Retry(attempts=3, delay=1))
        .condition("known", "input.known", otherwise=inner.rejoin())
        .call("book", "book", undo="cancel", deadline=5, input={"n": "input.id"}, output={"b": "response.b"})
    )


def test_they_are_printed_stored_and_drawn() -> None:
    built = parts().build()
    code = code_of(built)
    assert "retry=Retry(attempts=3, delay=1)" in code
    assert 'undo="cancel"' in code
    known: dict[str, Any] = {}
    exec(code, known)
    assert lower(known["flow"]) == lower(built)
    again = read_source(decode(encode(built.source, "the source"), "the source"))
    assert isinstance(again, Definition)
    assert lower(again) == lower(built)
    drawn = picture_of(built)
    for words in ("webhook to https://shop.example/hook", "mail to ann@example.org, bob@example.org", "call"):
        assert words in drawn


PATIENT = model.Retry(calls=5, delay=30.0, backoff="exponential", max_delay=3600.0, jitter=0.5)


def again(flow: Flow) -> model.Retry | None:
    [node] = [node for node in lower(flow.build()).nodes if node.id == "it"]
    return node.retry


@pytest.mark.parametrize(
    ("retry", "meant"),
    [
        (None, None),
        (Retry(), PATIENT),
        (Retry(attempts=2), msgspec.structs.replace(PATIENT, calls=2)),
        (Retry(delay=1), msgspec.structs.replace(PATIENT, delay=1.0)),
        (Retry(attempts=3, delay=0, backoff="fixed", jitter=0), model.Retry(calls=3)),
    ],
)
def test_what_a_retry_leaves_open_is_what_the_outbox_does_by_itself(
    retry: Retry | None, meant: model.Retry | None
) -> None:
    """The attempts too: the flow's are not for effects."""
    flow = Flow("f", attempts=9)
    assert again(flow.webhook("it", "https://x", retry=retry)) == meant
    assert again(flow.mail("it", to="ann@x", retry=retry)) == meant


def test_the_defaults_of_the_builder_are_those_of_the_outbox() -> None:
    assert PATIENT == DEFAULT_RETRY


def test_one_retry_means_to_a_call_no_pause_and_to_an_effect_its_own() -> None:
    twice = Retry(attempts=2)
    assert again(Flow("f").call("it", "book", retry=twice)) == model.Retry(calls=2)
    assert again(Flow("f", attempts=3).call("it", "book", retry=Retry(delay=1))) == model.Retry(calls=3, delay=1.0)
    assert again(Flow("f").mail("it", to="ann@x", retry=twice)) == msgspec.structs.replace(PATIENT, calls=2)


@pytest.mark.parametrize(
    ("flow", "place"),
    [
        (Flow("f").webhook("tell", ""), "steps.tell.url"),
        (Flow("f").webhook("tell", "https://x", headers={"X": 1}), "steps.tell.headers"),
        (Flow("f").webhook("tell", "https://x", deadline=5), "steps.tell.deadline"),
        (Flow("f").webhook("tell", "https://x", retry=Retry(attempts="3")), "steps.tell.retry.attempts"),  # pyright: ignore
        (Flow("f").webhook("tell", "https://x", awaits=1), "steps.tell.awaits"),  # pyright: ignore
        (Flow("f").mail("thank", to=[]), "steps.thank.to"),
        (Flow("f").mail("thank", to="ann@x", subject=""), "steps.thank.subject"),
        (Flow("f").call("book", lambda ctx, data: data), "steps.book.handler"),
        (Flow("f").call("book", "book", deadline=-1), "steps.book.deadline"),
        (Flow("f").mail("thank", to="ann@x", retry=3), "steps.thank.retry"),  # pyright: ignore
        (Flow("f").call("book", "book", retry=Retry(delay=-1)), "steps.book.retry.delay"),
        (Flow("f").webhook("tell", "https://x", **{"undo": "undo"}), "steps.tell.undo"),
        (Flow("f").webhook("tell", "https://x", **{"retry_delay": 1}), "steps.tell.retry_delay"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(flow: Flow, place: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    assert [found.place for found in refusal.value.diagnostics] == [place]


def test_an_expression_that_cannot_be_read_is_named() -> None:
    with pytest.raises(DefinitionError) as refusal:
        lower(Flow("f").webhook("tell", "https://x", input={"a": "1 +"}).build())
    assert [found.place for found in refusal.value.diagnostics] == ["steps.tell.input.a@2"]
