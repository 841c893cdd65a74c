"""Email over SMTP: one message per effect, known by a Message-ID that is the same on every attempt.

The standard library's client in a thread: it has every option a mail server may want and needs no dependency; mail is
never so fast that a thread per delivery matters.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as MAIL
from email.utils import format_datetime
from functools import partial
from typing import Any, Final, cast

from holdfast.core.model.timestamps import to_datetime
from holdfast.runtime.effects.delivery import Delivered, Delivery, EffectFailed
from holdfast.runtime.effects.evidence import message
from holdfast.runtime.effects.options import EffectOptions, Smtp
from holdfast.runtime.effects.secrets import Secrets

MOST_RECIPIENTS: Final = 100
LONGEST_SUBJECT: Final = 500
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_ADDRESS: Final = re.compile(r"[^\s@<>(),;:\"\[\]\\]{1,64}@[^\s@<>(),;:\"\[\]\\]{1,253}")
_NAMED: Final = re.compile(r"([^<>\"]*?)\s*<([^<>]+)>")


class EmailKind:
    """Fields `to`, `cc`, `bcc`, `reply_to`, `from`, `subject`, `text`, `html`: from the config, else from the data."""

    def __init__(self, options: EffectOptions, threads: ThreadPoolExecutor) -> None:
        self._options = options
        self._threads = threads

    async def deliver(self, delivery: Delivery) -> Delivered:
        smtp = self._options.smtp
        if smtp is None:
            raise EffectFailed("EFFECT_NOT_SET_UP", "No mail server is set up here (HOLDFAST_SMTP).", elsewhere=True)
        mail, recipients = compose(delivery, smtp)
        secrets = Secrets(lambda _org, _name: smtp.password, delivery.org)
        secrets.find("smtp")
        loop = asyncio.get_running_loop()
        try:
            send = partial(_send, smtp, self._options, mail, recipients, delivery.check)
            refused = await loop.run_in_executor(self._threads, send)
        except (smtplib.SMTPException, OSError) as failure:
            raise _failure(failure, secrets) from failure
        rejected = {address: message(answer, secrets) for address, answer in refused.items()}
        accepted = [address for address in recipients if address not in rejected]
        known = {"message_id": str(mail["Message-ID"]), "accepted": accepted}
        return Delivered({**known, "refused": [*rejected]}, {**known, "refused": rejected})


def compose(delivery: Delivery, smtp: Smtp) -> tuple[EmailMessage, list[str]]:
    """Compose the message and its list of recipients; refuse input that could smuggle in a header or a recipient."""
    fields = _fields(delivery)
    sender = _address(fields.get("from", smtp.sender), "from")
    people = {name: _addresses(fields.get(name), name) for name in ("to", "cc", "bcc")}
    recipients = list(dict.fromkeys(person.addr_spec for group in people.values() for person in group))
    if not 1 <= len(recipients) <= MOST_RECIPIENTS:
        raise _config(f"it has {len(recipients)} recipients, not 1 to {MOST_RECIPIENTS}")
    mail = EmailMessage(MAIL)
    mail["Message-ID"] = f"<{delivery.key}@{sender.domain}>"
    mail["Date"] = format_datetime(to_datetime(delivery.created_at))
    mail["From"] = sender
    for name, header in (("to", "To"), ("cc", "Cc")):
        if people[name]:
            mail[header] = people[name]
    if fields.get("reply_to") is not None:
        mail["Reply-To"] = _address(fields["reply_to"], "reply_to")
    mail["Subject"] = _line(fields.get("subject", ""), "subject")
    text, html = fields.get("text"), fields.get("html")
    mail.set_content(_content(text, "text") if text is not None or html is None else "This message is HTML.")
    if html is not None:
        mail.add_alternative(_content(html, "html"), subtype="html")
    return mail, recipients


def _fields(delivery: Delivery) -> dict[str, Any]:
    """The fields of the message; the definition wins over the data."""
    data: Any = delivery.data
    given = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return {**given, **delivery.config}


def _line(value: object, name: str) -> str:
    if not isinstance(value, str) or _UNFIT.search(value) or len(value) > LONGEST_SUBJECT:
        raise _config(f"`{name}` is not one line of text")
    return value


def _content(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _config(f"`{name}` is not text")
    return value


def _addresses(value: Any, name: str) -> list[Address]:
    if value is None:
        return []
    many = cast("list[object]", value) if isinstance(value, list) else [cast(object, value)]
    return [_address(one, name) for one in many]


def _address(value: object, name: str) -> Address:
    """`ann@example.org` or `Ann <ann@example.org>`; never a list in one text."""
    text = _line(value, name).strip()
    display = ""
    named = _NAMED.fullmatch(text)
    if named is not None:
        display, text = named.groups()
    if not _ADDRESS.fullmatch(text):
        raise _config(f"`{name}` holds something that is no address")
    user, _, domain = text.rpartition("@")
    return Address(display, user, domain)


def _send(
    smtp: Smtp, options: EffectOptions, mail: EmailMessage, recipients: list[str], check: Callable[[], None]
) -> dict[str, tuple[int, bytes]]:
    """Send, blocking; return the recipients that were refused while others were accepted."""
    tls: ssl.SSLContext = options.tls or ssl.create_default_context()
    with _connected(smtp, options.connect_timeout, tls) as client:
        if client.sock is not None:
            client.sock.settimeout(options.read_timeout)
        if smtp.security == "starttls":
            client.starttls(context=tls)
        if smtp.user is not None:
            client.login(smtp.user, smtp.password or "")
        check()  # after the wait for a thread, a connection and a login
        return client.send_message(mail, to_addrs=recipients)


def _connected(smtp: Smtp, timeout: float, tls: ssl.SSLContext) -> smtplib.SMTP:
    if smtp.security == "tls":
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=timeout, context=tls)
    return smtplib.SMTP(smtp.host, smtp.port, timeout=timeout)


def _failure(failure: Exception, secrets: Secrets) -> EffectFailed:
    text = message(failure, secrets)
    if isinstance(failure, smtplib.SMTPRecipientsRefused):
        final = all(500 <= code < 600 for code, _ in failure.recipients.values())
        return EffectFailed("EFFECT_SMTP_REFUSED", f"Every recipient was refused: {text}", final=final)
    if isinstance(failure, smtplib.SMTPNotSupportedError):
        return EffectFailed("EFFECT_SMTP_REFUSED", f"The mail server lacks what is needed: {text}", final=True)
    if isinstance(failure, smtplib.SMTPResponseException):
        final = 500 <= failure.smtp_code < 600 and not isinstance(failure, smtplib.SMTPAuthenticationError)
        return EffectFailed(
            "EFFECT_SMTP_REFUSED",
            f"The mail server answered {failure.smtp_code}: {text}",
            final=final,
            evidence={"status": failure.smtp_code},
        )
    if isinstance(failure, TimeoutError) or isinstance(failure.__context__, TimeoutError):
        return EffectFailed("EFFECT_TIMEOUT", "The mail server did not answer in time.")
    return EffectFailed("EFFECT_UNREACHABLE", f"The mail server cannot be reached: {text}")


def _config(why: str) -> EffectFailed:
    return EffectFailed("EFFECT_CONFIG_INVALID", f"The email is not set up properly: {why}.", final=True)
