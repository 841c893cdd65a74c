from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.cli.process.logs import configure
from holdfast.errors import HoldfastError


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_json_has_one_object_per_record_with_its_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=True, level="info")
    extra = {"instance": "i-1", "step": "reserve", "flow": "order"}
    logging.getLogger("shop").warning("lost %d\nleases –", 2, extra=extra)
    [line] = lines(capsys)
    record = json.loads(line)
    moment = record.pop("time")
    assert record == {
        "level": "warning",
        "logger": "shop",
        "message": "lost 2\nleases –",
        **extra,
    }
    assert len(moment) == len("2026-01-01T00:00:00.000Z")
    assert moment.endswith("Z")


def test_json_leaves_out_what_a_record_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=True, level="info")
    logging.getLogger("shop").info("ready")
    assert set(json.loads(lines(capsys)[0])) == {"time", "level", "logger", "message"}


def test_json_keeps_a_traceback_on_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=True, level="info")
    try:
        raise ValueError("no funds")
    except ValueError:
        logging.getLogger("holdfast").exception("a handler failed")
    [line] = lines(capsys)
    assert "ValueError: no funds" in json.loads(line)["exception"]


def test_plain_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=False, level="info")
    logging.getLogger("holdfast.worker").info("claimed", extra={"instance": "i-1"})
    [line] = lines(capsys)
    assert line.endswith("Z info    holdfast.worker: claimed instance=i-1")


def test_plain_shows_the_traceback_below(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    try:
        raise ValueError("no funds")
    except ValueError:
        logging.getLogger("holdfast").exception("a handler failed")
    assert lines(capsys)[-1] == "  ValueError: no funds"


def test_the_level_counts_and_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=False, level="error")
    logging.getLogger("holdfast").warning("quiet")
    configure(json=True, level="WARNING")
    logging.getLogger("holdfast").warning("heard")
    [line] = lines(capsys)
    assert json.loads(line)["message"] == "heard"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(HoldfastError) as refusal:
        configure(level="loud")
    assert refusal.value.code == "SETTING_INVALID"
    assert "warning" in refusal.value.hint
