"""`holdfast acks`: facts that consumers have not answered; answer one, or send failed ones again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.cli.commands.dead_letters import answer_replay
from holdfast.cli.commands.machines.machines import show_answer
from holdfast.cli.confirm import Yes, confirm
from holdfast.cli.filters import take_since
from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import busy, say, show, show_json, table
from holdfast.cli.target import actor, anywhere, place
from holdfast.errors import Refused
from holdfast.runtime.ops.dead_letters import DELIVERY, LetterFilter
from holdfast.store.deliveries import Delivery
from holdfast.views.spans import shown

acks = typer.Typer(help="Facts that consumers have not answered.", no_args_is_help=True)

Consumer = Annotated[str | None, typer.Option("--consumer", help="Of this consumer; --environment names its own.")]
Environment = Annotated[str | None, typer.Option("--environment", help="The environment of the consumer.")]
Instance = Annotated[str | None, typer.Option("--instance", help="Of this instance.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@acks.command("list")
@anywhere
def list_(
    instance: Instance = None,
    consumer: Consumer = None,
    environment: Environment = None,
    closed: Annotated[bool, typer.Option("--closed", help="Of an instance: also those that are over.")] = False,
    after: Annotated[str | None, typer.Option("--after", help="`next` of the page before.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """Facts that are open for a consumer, or those of an instance; oldest first."""
    if (consumer is None) != (environment is None):
        raise Refused(
            "A consumer is named by its environment and its name.",
            code="FILTER_INVALID",
            hint="Give --environment and --consumer.",
        )
    taker = None if consumer is None or environment is None else (environment, consumer)
    with place() as engine:
        page = engine.deliveries(instance=instance, consumer=taker, closed=closed, after=after, limit=limit)
    if json:
        show_json({"items": [msgspec.to_builtins(each) for each in page.items], "next": page.next})
        return
    if page.items:
        head = ("ack", "since", "consumer", "of", "fact", "status", "attempts")
        table(head, [_row(each) for each in page.items])
    else:
        say("There are no such facts.")
    if page.next is not None:
        say(f"There are more: --after {page.next}")


def _row(each: Delivery) -> tuple[str, ...]:
    attempts = f"{each.attempts} of {each.max_attempts}"
    fact = each.hook or f"{each.kind} {each.state}"
    about = f"{each.definition} {each.external_ref}"
    return each.ack, shown(each.created_at), f"{each.environment}/{each.consumer}", about, fact, each.status, attempts


@acks.command()
@anywhere
def answer(
    environment: Annotated[str, typer.Argument(metavar="ENV", help="The environment of the consumer.")],
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer.")],
    ack: Annotated[str, typer.Argument(metavar="ACK", help="The handle of the fact.")],
    outcome: Annotated[str, typer.Argument(metavar="OUTCOME", help="delivered, processed, failed or retry.")],
    message: Annotated[str | None, typer.Option("--message", help="Why.")] = None,
    verdict: Annotated[str | None, typer.Option("--verdict", help="Of a gate: success or failure.")] = None,
    then: Annotated[str | None, typer.Option("--then", help="The next event, in the same commit.")] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="What comes with it: JSON, @file or -.")] = None,
    delay: Annotated[float | None, typer.Option("--delay", help="Of a retry: seconds until then.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    json: Json = False,
) -> None:
    """Answer a fact in the place of its consumer."""
    content = read_given(payload, "--payload")
    if then is None and content is not None:
        raise Refused("A payload needs an event.", code="EVENT_MISSING", hint="Name it: --then EVENT.")
    following = None if then is None else (then, content)
    with place() as engine:
        told = engine.ack(
            environment, consumer, ack, outcome, message=message, verdict=verdict, then=following, delay=delay, by=by
        )
    if told is not None:
        show_answer(told, json=json)
    else:
        show({"ack": ack, "outcome": outcome}, json=json)


@acks.command()
@anywhere
def requeue(
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit trail.")],
    consumer: Annotated[str | None, typer.Option("--consumer", help="Only of this consumer.")] = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Only of consumers there.")] = None,
    instance: Annotated[str | None, typer.Option("--instance", help="Only of this instance.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only what failed since: a moment, or 1h, 7d.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="At most this many per second.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent again.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Send failed facts again, in their order, with as many attempts more; exit code 5: some could not be."""
    who, asks = actor(by), not (yes or dry_run)
    wanted = LetterFilter(
        instance_id=instance, source=DELIVERY, since=take_since(since), consumer=consumer, environment=environment
    )
    with place() as engine, busy("Facts"):
        done = engine.replay_dead_letters(
            None, filter=wanted, by=who, reason=reason, dry_run=dry_run or asks, rate=rate
        )
    if asks:
        confirm(done.count, "send again", "fact", yes=False)
        with place() as engine, busy("Facts"):
            done = engine.replay_dead_letters(None, filter=wanted, by=who, reason=reason, rate=rate)
    answer_replay(done, "sent again", "facts", json=json)
