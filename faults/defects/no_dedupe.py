"""Defect 6: a signal is new whatever its id, and its receipt gives way."""

from __future__ import annotations

from typing import Any

from faults.defects.patching import replace, rewrite
from holdfast.runtime.commit.batch import Plan


def apply() -> None:
    rewrite("insert_outbox_receipts", lambda text: text.rstrip() + "\non conflict do nothing\n")
    replace(Plan, "_is_new", _always)


def _always(plan: Plan, item: Any, receipt: Any) -> bool:
    return True
