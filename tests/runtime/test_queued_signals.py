"""Signals of documents travel through the queue like all others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.model.signals import SYSTEM, Actor, EntityChanged, Signal, VerbCalled
from holdfast.errors import PayloadError
from holdfast.runtime.commit.items import Item, from_queue
from holdfast.store.commit.locks import QueuedSignal

INSTANCE, ID = b"i" * 16, b"s" * 16


def read(kind: str, **payload: Any) -> Item:
    return from_queue(QueuedSignal(INSTANCE, ID, kind, msgspec.json.encode(payload), 0, None), None)


@pytest.mark.parametrize(
    ("kind", "payload", "signal"),
    [
        ("verb", {"action": "submit", "version": 3}, VerbCalled(ID, "submit", 3)),
        (
            "verb",
            {"action": "submit", "version": 3, "payload": {"n": 1}, "comment": "soon", "if_version": 7},
            VerbCalled(ID, "submit", 3, b'{"n":1}', "soon", 7),
        ),
        ("entity", {"action": "update", "version": 4}, EntityChanged(4, "update")),
        (
            "entity",
            {"action": "update", "version": 4, "material": False, "origin": "69" * 16},
            EntityChanged(4, "update", material=False, origin=INSTANCE),
        ),
    ],
)
def test_a_signal_of_a_document_is_read(kind: str, payload: dict[str, Any], signal: Signal) -> None:
    assert read(kind, **payload).signal == signal
    assert read(kind, **payload).actor == SYSTEM
    assert read(kind, **payload, actor={"id": "ann"}).actor == Actor("ann")


@pytest.mark.parametrize("payload", [{"version": "three"}, {"origin": "no hex"}, {"origin": 5}, {"material": "yes"}])
def test_an_envelope_that_makes_no_sense_is_unreadable(payload: dict[str, Any]) -> None:
    with pytest.raises(PayloadError) as refused:
        read("entity", **payload)
    assert refused.value.code == "SIGNAL_UNREADABLE"
