"""Appearance of a state on a terminal: a sign in Unicode, a sign in ASCII, and a style."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.views.labels import FAILED_STUCK, FAILED_UNDOING, FAILED_UNDONE, QUEUED, RETRYING, STUCK, UNREACHED


class Look(NamedTuple):
    glyph: str
    plain: str  # where the terminal has no such signs
    style: str


LOOKS: Final[dict[str, Look]] = {
    UNREACHED: Look("·", ".", "dim"),
    QUEUED: Look("○", "o", "cyan"),
    RETRYING: Look("◐", "%", "yellow"),
    "pending": Look("○", "o", "cyan"),
    "running": Look("●", "*", "bold cyan"),
    "waiting": Look("◔", "@", "yellow"),
    "waiting_decision": Look("?", "?", "bold yellow"),
    "completed": Look("✓", "+", "green"),
    "confirmed": Look("✓", "+", "green"),
    "rejected": Look("✗", "x", "bold red"),
    "failed": Look("✗", "x", "bold red"),
    "paused": Look("‖", "!", "bold red"),
    "skipped": Look("–", "-", "dim"),
    "cancelled": Look("–", "-", "dim"),
    "compensation": Look("↶", "<", "bold magenta"),
    "rolled_back": Look("↩", "<", "magenta"),
    FAILED_UNDONE: Look("✗", "x", "magenta"),
    FAILED_UNDOING: Look("✗", "x", "bold magenta"),
    FAILED_STUCK: Look("✗", "x", "bold red"),
    STUCK: Look("!", "!", "bold red"),
    "superseded": Look("~", "~", "dim"),
}
