"""Whatever callers send is printed and logged on one line and steers nothing."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
from tests.hostile_texts import HARMLESS, HOSTILE_TEXTS, MARKUP, steers

import holdfast
from holdfast.cli.process.logs import JsonFormatter, PlainFormatter
from holdfast.logs import logger
from holdfast.printable import printable, printable_lines

SOURCES = sorted(Path(holdfast.__file__).parent.rglob("*.py"))


class Kept(logging.Handler):
    """A handler of somebody's own, with the formatter of their choice."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def handleError(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.msg)


@pytest.fixture(params=["theirs", "plain", "json"])
def kept(request: pytest.FixtureRequest) -> Kept:
    theirs = logging.Formatter("%(levelname)s %(name)s %(message)s flow=%(flow)s", defaults={"flow": "-"})
    return Kept({"theirs": theirs, "plain": PlainFormatter(), "json": JsonFormatter()}[request.param])


@pytest.fixture
def log(kept: Kept, request: pytest.FixtureRequest) -> logging.Logger:
    found = logger(f"holdfast.{request.node.name}")
    found.propagate = False
    found.addHandler(kept)
    return found


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_text_becomes_one_line_that_steers_nothing(text: str) -> None:
    shown = printable(text)
    assert not steers(shown)
    assert len(shown.splitlines()) == 1
    shown.encode()  # halves of a pair would not be


@pytest.mark.parametrize("text", HARMLESS)
def test_text_of_every_script_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_every_character_that_the_database_keeps_is_safe() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert not steers(printable(every))
    assert len(printable(every).splitlines()) == 1


def test_lines_are_kept_where_they_are_meant() -> None:
    assert printable_lines("a\nb\x1b[2J\r", "| ") == "| a\n| b\\x1b[2J\\r"


@pytest.mark.parametrize("text", (HOSTILE_TEXTS | MARKUP).values(), ids=HOSTILE_TEXTS | MARKUP)
def test_arguments_and_fields_of_a_log_line_are_safe_for_every_formatter(
    log: logging.Logger, kept: Kept, text: str
) -> None:
    log.warning("The step %s failed: %s", text, ValueError(text), extra={"flow": text})
    log.warning(text)
    for line in kept.texts:
        assert len(line.splitlines()) == 1
        assert not steers(line)


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_no_line_of_a_traceback_passes_for_a_record(log: logging.Logger, kept: Kept, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("A handler failed")
    [told] = kept.texts
    _, *below = told.splitlines()
    assert not steers(told)
    assert all(line.startswith("  ") for line in below)


def test_a_line_that_does_not_fit_its_arguments_is_told_safely(log: logging.Logger, kept: Kept) -> None:
    log.warning("%d of %d", "two\nforged")
    [told] = kept.texts
    assert len(told.splitlines()) == 1
    assert "%d of %d" in told


def test_a_plain_record_keeps_its_template_and_arguments() -> None:
    seen: list[logging.LogRecord] = []
    found = logger("holdfast.test_template")
    found.addFilter(lambda record: bool(seen.append(record)))
    found.warning("The step %s failed", "pay")
    assert (seen[0].msg, seen[0].args) == ("The step %s failed", ("pay",))


def _named(path: Path) -> str:
    return path.relative_to(SOURCES[0].parents[0]).as_posix()


def _calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def bypasses_the_log(source: str) -> list[str]:
    """Uses of `logging` that log, or take a logger that could, without the one door."""
    tree = ast.parse(source)
    configured = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("setLevel", "addFilter")
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "logging":
            found.append(f"from logging import, line {node.lineno}")
        if isinstance(node, ast.Import) and any(one.name == "logging" and one.asname for one in node.names):
            found.append(f"import logging as, line {node.lineno}")
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "logging"
            and node.attr in LOGS
        ):
            found.append(f"logging.{node.attr}, line {node.lineno}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger" and id(node) not in configured:
            found.append(f"logging.getLogger, line {node.lineno}")
    return found


LOGS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "lastResort", "root"}
LOG_DOORS = {"logs.py", "cli/process/logs.py"}  # the door, and the handler that the commands put on the root


@pytest.mark.parametrize("path", SOURCES, ids=_named)
def test_every_module_logs_through_the_one_door(path: Path) -> None:
    if _named(path) not in LOG_DOORS:
        assert not bypasses_the_log(path.read_text()), "take `holdfast.logs.logger`"


@pytest.mark.parametrize(
    "source",
    [
        "log = logging.getLogger(__name__)",
        "logging.getLogger('holdfast').warning('x')",
        "logging.warning('x')",
        "from logging import getLogger",
        "import logging as l",
        "logging.root.error('x')",
    ],
)
def test_a_bypass_of_the_log_would_be_seen(source: str) -> None:
    assert bypasses_the_log(source)
