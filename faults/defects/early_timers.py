"""Defect 13: timers fire 300 ms before their moment."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("fire_timers", ("<= (select holdfast.clock())", "<= (select holdfast.clock()) + interval '300 ms'"))
