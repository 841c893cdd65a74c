"""Durations as people write them: `72h`, `1d12h`, or ISO 8601 such as `P3D`. Months and years have no fixed length."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 100 * 365.25 * 86_400
_UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_NUMBER: Final = r"[0-9]{1,10}(?:\.[0-9]{1,6})?"
PLAIN: Final = "".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS)
ISO: Final = (
    f"P(?=[0-9T])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
PATTERN: Final = f"^(?:(?=[0-9]){PLAIN}|{ISO})$"
ISO_PATTERN: Final = f"^{ISO}$"
_PLAIN: Final = re.compile(PLAIN)
_ISO: Final = re.compile(ISO)


def read_duration(text: str) -> float | None:
    """Read a duration as seconds; None if the text is none."""
    return _seconds(_PLAIN.fullmatch(text) or _ISO.fullmatch(text))


def read_iso_duration(text: str) -> float | None:
    """Read a duration in ISO 8601 as seconds; None if the text is none."""
    return _seconds(_ISO.fullmatch(text))


def _seconds(match: re.Match[str] | None) -> float | None:
    if match is None or not any(match.groups()):
        return None
    seconds = sum(
        float(amount) * unit
        for amount, unit in zip(match.groups(), _UNITS.values(), strict=False)
        if amount is not None
    )
    return round(seconds, 6) if seconds <= LONGEST else None


def write_duration(seconds: float) -> str:
    """Write seconds as a duration that reads back as the same number of them."""
    for unit, length in _UNITS.items():
        amount = round(seconds / length, 6)
        text = f"{amount:.6f}".rstrip("0").rstrip(".") + unit
        if amount == int(amount) and (amount or unit == "s") and read_duration(text) == seconds:
            return text
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
