"""Email over a real mail server: the message, who refuses what, and nothing smuggled in."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword
from effect_flows import event_types, flow, run
from effect_servers import Mailbox, running_mailbox

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.graph.model import Retry
from holdfast.runtime.effects.options import EffectOptions, Smtp
from running import Evidence

pytestmark = pytest.mark.anyio

MailServer = tuple[Mailbox, int]


def options(port: int, **smtp: Any) -> EffectOptions:
    given = {"host": "127.0.0.1", "port": port, "security": "plain", "sender": "Shop <shop@example.org>"}
    return EffectOptions(smtp=Smtp(**given | smtp), connect_timeout=2.0, read_timeout=2.0)


async def send(engine: Engine, server: MailServer, data: Any = None, *, awaits: bool = False, **config: Any) -> Any:
    engine.effect_options = options(server[1])
    return await run(engine, flow("email", awaits=awaits, config=config), data)


async def test_a_mail_arrives_once(engine: Engine, mail_server: MailServer) -> None:
    config = {"to": "Ann Example <ann@example.org>", "cc": ["bob@example.org"], "bcc": "eve@example.org"}
    effect = await send(engine, mail_server, awaits=True, subject="Grüße 📦", text="Hallo\nAnn", **config)

    mailbox, _ = mail_server
    [mail] = mailbox.mails
    assert mailbox.recipients == [["ann@example.org", "bob@example.org", "eve@example.org"]]
    assert (mail["To"], mail["Cc"], mail["Bcc"]) == ("Ann Example <ann@example.org>", "bob@example.org", None)
    assert (mail["From"], mail["Subject"]) == ("Shop <shop@example.org>", "Grüße 📦")
    assert mail["Message-ID"] == f"<{effect.key}@example.org>"
    assert mail.get_content().splitlines() == ["Hallo", "Ann"]
    assert effect.status == "completed"
    assert effect.evidence["accepted"] == ["ann@example.org", "bob@example.org", "eve@example.org"]
    assert (await engine.get(effect.instance_id)).data["message_id"] == mail["Message-ID"]
    assert await event_types(engine, effect) == ["effect_emitted", "effect_delivered"]


async def test_a_mail_may_be_html_and_come_with_the_data(engine: Engine, mail_server: MailServer) -> None:
    data = {"to": ["ann@example.org"], "subject": "hi", "html": "<p>hi</p>", "from": "mallory@example.org"}
    effect = await send(engine, mail_server, data, reply_to="help@example.org", **{"from": "shop@example.org"})

    [mail] = mail_server[0].mails
    assert effect.status == "completed"
    assert (mail["From"], mail["Reply-To"]) == ("shop@example.org", "help@example.org")  # the definition wins
    html = mail.get_body(("html",))
    assert html is not None
    assert html.get_content().strip() == "<p>hi</p>"


async def test_a_server_that_is_busy_is_asked_again_with_the_same_message(
    engine: Engine, mail_server: MailServer
) -> None:
    mail_server[0].answers = ["451 try again later"]
    effect = await send(engine, mail_server, to="ann@example.org", subject="x", text="y")

    assert (effect.status, effect.attempts, len(mail_server[0].mails)) == ("completed", 2, 1)
    assert mail_server[0].mails[0]["Message-ID"] == f"<{effect.key}@example.org>"


async def test_a_server_that_refuses_for_good_is_not_asked_again(engine: Engine, mail_server: MailServer) -> None:
    mail_server[0].answers = ["554 spam"]
    effect = await send(engine, mail_server, to="ann@example.org", subject="x", text="y")

    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_SMTP_REFUSED", 1)
    assert effect.evidence["status"] == 554


async def test_recipients_may_be_refused_one_by_one(engine: Engine, mail_server: MailServer) -> None:
    mail_server[0].refused = {"gone@example.org"}
    some = await send(engine, mail_server, to=["ann@example.org", "gone@example.org"], subject="x", text="y")
    assert some.status == "completed"
    assert some.evidence["accepted"] == ["ann@example.org"]
    assert "550" in some.evidence["refused"]["gone@example.org"]

    all_ = await run(engine, flow("email", name="all", config={"to": "gone@example.org", "subject": "x", "text": "y"}))
    assert (all_.status, all_.error["code"], all_.attempts) == ("dead_letter", "EFFECT_SMTP_REFUSED", 1)


@pytest.mark.parametrize(
    "config",
    [
        {"to": "ann@example.org\r\nBcc: eve@example.org"},
        {"to": "ann@example.org\nX: y"},
        {"to": "Ann\r\n <ann@example.org>"},
        {"to": "ann@example.org, eve@example.org"},
        {"to": "ann@example.org>,<eve@example.org"},
        {"to": "ann@example.org eve@example.org"},
        {"to": "ann"},
        {"to": "<ann@example.org> SIZE=1"},
        {"to": ""},
        {"to": []},
        {"to": 17},
        {"to": [["ann@example.org"]]},
        {"to": ["ann@example.org"] * 0 + [f"a{n}@example.org" for n in range(101)]},
        {"to": "ann@example.org", "subject": "x\r\nBcc: eve@example.org"},
        {"to": "ann@example.org", "subject": "x\x00"},
        {"to": "ann@example.org", "subject": "x\u2028y"},
        {"to": "ann@example.org", "subject": "x" * 501},
        {"to": "ann@example.org", "subject": 5},
        {"to": "ann@example.org", "from": "shop@example.org\r\nX: y"},
        {"to": "ann@example.org", "reply_to": "a@b.example\r\nX: y"},
        {"to": "ann@example.org", "text": {"no": "text"}},
        {"to": "ann@example.org", "html": 5},
    ],
    ids=lambda config: ascii(config)[:60],
)
async def test_nothing_is_smuggled_into_a_mail(engine: Engine, mail_server: MailServer, config: dict[str, Any]) -> None:
    engine.effect_options = options(mail_server[1])
    # By the data: that a definition may not even be published with some of these is another matter.
    data = {"subject": "s", "text": "t", **config}
    if "\x00" in str(config.get("subject")):
        graph = flow("email", config={"subject": "s", "text": "t", "to": "ann@example.org", "from": "bad"})
        effect = await run(engine, graph)
    else:
        effect = await run(engine, flow("email"), data)
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_CONFIG_INVALID", 1)
    assert mail_server[0].mails == []


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_logging_in(engine: Engine, evidence: Evidence) -> None:
    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        return AuthResult(success=data.login == b"shop" and data.password == b"open-sesame-17", handled=False)

    def accept(mailbox: Mailbox, port: int, password: str) -> EffectOptions:
        return options(port, user="shop", password=password)

    rules = {"authenticator": check, "auth_required": True, "auth_require_tls": False}
    with running_mailbox(**rules) as (mailbox, port):
        config = {"to": "ann@example.org", "subject": "x", "text": "y"}
        engine.effect_options = accept(mailbox, port, "open-sesame-17")
        assert (await run(engine, flow("email", config=config))).status == "completed"
        assert len(mailbox.mails) == 1

        engine.effect_options = accept(mailbox, port, "wrong-password-18")
        effect = await run(engine, flow("email", name="wrong", retry=Retry(calls=2), config=config))
        assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_SMTP_REFUSED", 2)
    dump = str(evidence.rows("select t::text from holdfast.effects t"))
    assert "sesame" not in dump
    assert "wrong-password" not in dump


async def test_encryption_that_is_asked_for_is_insisted_on(engine: Engine, mail_server: MailServer) -> None:
    engine.effect_options = options(mail_server[1], security="starttls")
    config = {"to": "ann@example.org", "subject": "x", "text": "y"}
    effect = await run(engine, flow("email", config=config))
    assert (effect.status, effect.error["code"]) == ("dead_letter", "EFFECT_SMTP_REFUSED")
    assert mail_server[0].mails == []


async def test_a_server_that_is_silent_or_not_there(engine: Engine) -> None:
    config = {"to": "ann@example.org", "subject": "x", "text": "y"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        guests: list[socket.socket] = []
        thread = threading.Thread(target=lambda: [guests.append(silent.accept()[0]) for _ in range(2)], daemon=True)
        thread.start()
        engine.effect_options = EffectOptions(
            smtp=Smtp(host="127.0.0.1", port=port, security="plain", sender="shop@example.org"), connect_timeout=0.2
        )
        effect = await run(engine, flow("email", retry=Retry(calls=2), config=config))
        assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_TIMEOUT", 2)
        thread.join()
        for guest in guests:
            guest.close()
    engine.effect_options = options(1)
    effect = await run(engine, flow("email", name="nobody", config=config))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_UNREACHABLE", 3)


async def test_no_mail_server_is_set_up(engine: Engine) -> None:
    effect = await run(engine, flow("email", config={"to": "ann@example.org"}))
    assert (effect.status, effect.error["code"], effect.attempts) == ("pending", "EFFECT_NOT_SET_UP", 0)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example", ("mail.example", 25, "plain", None)),
        ("smtp+starttls://a%40b:p%2Fw@mail.example", ("mail.example", 587, "starttls", "p/w")),
        ("smtps://u:p@mail.example:4465", ("mail.example", 4465, "tls", "p")),
    ],
)
def test_the_environment_names_the_mail_server(url: str, expected: tuple[Any, ...]) -> None:
    found = EffectOptions.from_environment({"HOLDFAST_SMTP": url, "HOLDFAST_SMTP_FROM": "a@b.example"}).smtp
    assert found is not None
    assert (found.host, found.port, found.security, found.password) == expected
    assert "p/w" not in repr(found)


@pytest.mark.parametrize("url", ["mail.example", "http://mail.example", "smtp://", "smtp://x:99999", "smtp://x:abc"])
def test_a_wrong_address_of_a_mail_server_is_said_without_it(url: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        EffectOptions.from_environment({"HOLDFAST_SMTP": url})
    assert refusal.value.code == "SETTING_INVALID"


def test_the_environment_names_allowed_hosts() -> None:
    found = EffectOptions.from_environment({"HOLDFAST_EFFECTS_ALLOW": " intern.example , 10.0.0.5:8080,"})
    assert found.allow == ("intern.example", "10.0.0.5:8080")
