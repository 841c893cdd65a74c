"""Read JSON from outside, as text or as data, strictly and within bounds."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.doors.machine.problems import Findings, Problem
from holdfast.errors import PayloadError
from holdfast.payloads.encoding import decode, encode

LARGEST: Final = 1 << 20  # bytes

Written = str | bytes | dict[str, Any]


class Document(msgspec.Struct, frozen=True):
    """A JSON document as it was read: its content, and its text unless it came as data."""

    file: str
    content: Any
    text: str | None = None

    def problems(self, findings: Findings) -> tuple[Problem, ...]:
        """List the findings about this document, in its order."""
        return findings.problems(self.content, self.text)


def read_document(written: Written, findings: Findings) -> Document | None:
    """Read a document; None with the reason among the findings."""
    try:
        data = written if isinstance(written, str | bytes) else encode(written, "The document")
        size = len(data if isinstance(data, bytes) else data.encode(errors="surrogatepass"))
        if size > LARGEST:
            findings.add("MACHINE_TOO_LARGE", (), f"The document has {size} bytes; at most {LARGEST} are read.")
            return None
        content = decode(_unmarked(data), "The document")
    except PayloadError as error:
        findings.add(error.code, (), error.message, hint=error.hint)
        return None
    text = None if not isinstance(written, str | bytes) else _text(data)
    return Document(findings.file, content, text)


def _unmarked(data: str | bytes) -> str | bytes:
    """Drop the byte order mark that some editors write."""
    return data.removeprefix("\ufeff") if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf")


def _text(data: str | bytes) -> str:
    text = _unmarked(data)
    return text.decode() if isinstance(text, bytes) else text
