"""Texts that forge lines of a log, steer a terminal, or mean something to the library that prints them."""

from __future__ import annotations

from typing import Final

HOSTILE_TEXTS: Final = {
    "line feed": "order\n2026-01-01T00:00:00.000Z info    holdfast.worker: all is well",
    "carriage return": "order\rdone",
    "crlf": "order\r\nHTTP/1.1 200 OK",
    "next line": "order\x85done",
    "line separator": "order\u2028done",
    "paragraph separator": "order\u2029done",
    "vertical tab": "order\x0bdone",
    "form feed": "order\x0cdone",
    "tab": "order\tdone",
    "null": "order\x00done",
    "backspace": "failed\x08\x08\x08\x08\x08\x08passed",
    "bell": "order\x07",
    "delete": "order\x7f",
    "clear the screen": "\x1b[2J\x1b[Horder",
    "colour": "\x1b[31mfailed\x1b[0m",
    "move the cursor up": "\x1b[1A\x1b[2Kpaid",
    "set the title": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "copy to the clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "ask for the state": "\x1b[6n\x1b[c",
    "eight-bit escape": "\x9b31mfailed",
    "eight-bit string": "\x90q\x9c",
    "right to left": "order\u202egnp.exe",
    "isolate": "order\u2066\u2067done\u2069",
    "embedding": "order\u202a\u202bdone\u202c",
    "marks": "order\u200e\u200f\u061cdone",
    "zero width": "or\u200bder\u2060\ufeff",
    "tags": "order\U000e0041\U000e007f",
    "half a pair": "order\ud800",
    "private use": "order\ue000",
    "interlinear": "order\ufff9\ufffb",
}
MARKUP: Final = {
    "markup": "[red]failed[/red]",
    "closing markup": "[/]order[/dim]",
    "blink": "[blink]order",
    "link markup": "[link=http://evil.example]order[/link]",
    "emoji": "orders.yaml:100:smile:",
    "backslash": "order\\",
    "backslash before markup": "\\[red]order\\\\[/red]",
    "format": "%s %d {0} {order}",
}
HARMLESS = (
    "Grüße",
    "注文 十七",
    "می\u200cخواهم",
    "👩\u200d👩\u200d👧",
    "שלום",
    "1\u00a0000 €",
    "a\u3000b",
    r"C:\new",
    "é",
)


def steers(text: str) -> list[str]:
    """The characters of printed text, its line breaks aside, that a terminal obeys or hides."""
    bad = {
        *map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *map(chr, range(0x202A, 0x202F)),
        *map(chr, range(0x2066, 0x206A)), *"\u2028\u2029\u200b\u200e\u200f\u061c\u2060\ufeff\ufff9\ufffb\ue000",
        *map(chr, range(0xD800, 0xE000)), *map(chr, range(0xE0000, 0xE0080)),
    } - {"\n"}  # fmt: skip
    return [one for one in text if one in bad]
