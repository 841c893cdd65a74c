"""Encryption with certificates of our own: the name is verified although the connection goes to an address."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effect_flows import flow, run, secrets
from effect_servers import Receiver, running_mailbox, running_receiver

from holdfast import Engine
from holdfast.graph.model import Retry
from holdfast.runtime.effects.options import EffectOptions, Smtp

pytestmark = pytest.mark.anyio

NAME = "hook.example"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hook.example, signed by itself."""
    place = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"],
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    return place


@pytest.fixture
def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


@pytest.fixture
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate / "cert.pem"))


@pytest.fixture
def names(serving: ssl.SSLContext) -> list[str]:
    """What clients called the server."""
    seen: list[str] = []
    serving.sni_callback = lambda _socket, name, _context: seen.append(name or "")
    return seen


@pytest.fixture
def secure_receiver(serving: ssl.SSLContext, names: list[str]) -> Iterator[Receiver]:
    with running_receiver(serving) as receiver:
        yield receiver


def options(receiver: Receiver, host: str, **others: Any) -> EffectOptions:
    async def at_home(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    return EffectOptions(allow=(host,), secrets=secrets, resolve=at_home, **others)


async def test_the_name_is_asked_for_and_verified_at_the_address(
    engine: Engine, secure_receiver: Receiver, names: list[str], trusting: ssl.SSLContext
) -> None:
    engine.effect_options = options(secure_receiver, NAME, tls=trusting)
    effect = await run(engine, flow(config={"url": f"https://{NAME}:{secure_receiver.port}/ok"}))

    assert effect.status == "completed", effect.error
    assert names == [NAME]
    assert secure_receiver.requests[0].headers["host"] == f"{NAME}:{secure_receiver.port}"


async def test_another_name_at_the_same_address_does_not_pass(
    engine: Engine, secure_receiver: Receiver, names: list[str], trusting: ssl.SSLContext
) -> None:
    """Nor does it profit from what was verified a moment ago for the first one."""
    engine.effect_options = options(secure_receiver, NAME, tls=trusting)
    await run(engine, flow(config={"url": f"https://{NAME}:{secure_receiver.port}/ok"}))
    engine.effect_options = options(secure_receiver, "other.example", tls=trusting)
    url = f"https://other.example:{secure_receiver.port}/ok"
    effect = await run(engine, flow(name="other", retry=Retry(calls=1), config={"url": url}))

    assert (effect.status, effect.error["code"]) == ("dead_letter", "EFFECT_UNREACHABLE")
    assert names == [NAME, "other.example"]
    assert len(secure_receiver.requests) == 1


async def test_a_certificate_nobody_vouches_for_does_not_pass(engine: Engine, secure_receiver: Receiver) -> None:
    engine.effect_options = options(secure_receiver, NAME)
    url = f"https://{NAME}:{secure_receiver.port}/ok"
    effect = await run(engine, flow(retry=Retry(calls=1), config={"url": url}))

    assert (effect.status, effect.error["code"]) == ("dead_letter", "EFFECT_UNREACHABLE")
    assert secure_receiver.requests == []


@pytest.mark.parametrize("trusted", [True, False])
async def test_mail_is_encrypted_when_asked_for(
    engine: Engine, serving: ssl.SSLContext, trusting: ssl.SSLContext, trusted: bool
) -> None:
    trusting.check_hostname = False  # it is reached by its address here
    with running_mailbox(tls_context=serving, require_starttls=True) as (mailbox, port):
        smtp = Smtp(host="127.0.0.1", port=port, security="starttls", sender="shop@example.org")
        engine.effect_options = EffectOptions(smtp=smtp, tls=trusting if trusted else None)
        config = {"to": "ann@example.org", "subject": "x", "text": "y"}
        effect = await run(engine, flow("email", retry=Retry(calls=1), config=config))
        assert effect.status == ("completed" if trusted else "dead_letter"), effect.error
        assert len(mailbox.mails) == trusted
