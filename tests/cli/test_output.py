"""Whatever callers send, the commands print it on one line, as text, and no terminal obeys it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_flows import started
from cli_here import command
from rich.text import Text
from tests.hostile_texts import HOSTILE_TEXTS, MARKUP, steers

import holdfast
from holdfast.cli.render import output
from holdfast.errors import HoldfastError, InputInvalid
from holdfast.printable import printable

TEXTS = HOSTILE_TEXTS | MARKUP
SOURCES = sorted(Path(holdfast.__file__).parent.rglob("*.py"))
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WAYS: dict[str, Callable[[str], None]] = {
    "facts": lambda text: output.show({"key": text}, json=False),
    "a table": lambda text: output.table(("key",), [(text,)]),
    "a cell": lambda text: output.table(("key", "status"), [(text, "running")]),
    "a sentence": output.say,
    "a warning": output.warn,
    "an error": lambda text: output.complain(HoldfastError(text, hint=text)),
    "misfits": lambda text: output.complain(InputInvalid("two", misfits=((text, text), ("b", text)))),
    "a drawing": lambda text: output.draw([Text.assemble((output.fit(text, 500), "red"))]),
    "a text": output.show_text,
}


@pytest.fixture(params=["terminal", "pipe"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    if request.param == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "2000")

    def tell(way: Callable[[str], None], text: str) -> str:
        way(text)
        captured = capsys.readouterr()
        return COLOURS.sub("", captured.out + captured.err)

    return tell


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_text_of_anybody_is_shown_and_not_obeyed(
    told: Callable[..., str], way: Callable[[str], None], text: str
) -> None:
    shown = told(way, text)
    assert not steers(shown)
    if way is not output.show_text:
        assert printable(text) in shown
        assert len(shown.splitlines()) == len(told(way, "plain").splitlines())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_json_is_ascii_and_keeps_the_text(capsys: pytest.CaptureFixture[str], text: str) -> None:
    output.show_json({"key": text})
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert not steers(shown)
    assert json.loads(shown) == {"key": text}


def test_a_drawing_itself_cannot_steer(told: Callable[..., str]) -> None:
    shown = told(lambda text: output.draw([Text(text)]), "a\x1b[2J\u202eb")
    assert not steers(shown)


def test_commands_about_an_instance_show_what_its_caller_sent(holdfast_dsn: str) -> None:
    hostile = "k\x1b[2J\n\u202eforged"
    id = started(holdfast_dsn, "waiting", {"order": hostile}, by=hostile, key=hostile)
    for words in (("show", id, "--events"), ("list",), ("timeline", id), ("tasks", "list")):
        answer = command(*words, HOLDFAST_DSN=holdfast_dsn)
        assert not answer.returncode, answer.stderr
        assert not steers(answer.stdout + answer.stderr), words
        assert not any(line.startswith("forged") for line in answer.stdout.splitlines())
    shown = json.loads(command("show", id, "--json", HOLDFAST_DSN=holdfast_dsn).stdout)
    assert hostile in shown["instance"].values()


PRINTS = {"print", "typer.echo", "typer.secho", "click.echo", "click.secho", "rich.print", "pprint"}


def bypasses_the_output(source: str) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in PRINTS or name.endswith(("Console", ".print", "stdout.write", "stderr.write")):
                found.append(f"{name}, line {node.lineno}")
        if isinstance(node, ast.ImportFrom) and node.module in ("rich", "rich.markup", "pprint", "rich.table"):
            found.append(f"from {node.module}, line {node.lineno}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SOURCES[0].parent).as_posix())
def test_every_module_prints_through_the_one_place(path: Path) -> None:
    if path.relative_to(SOURCES[0].parent).as_posix() != "cli/render/output.py":
        assert not bypasses_the_output(path.read_text()), "use holdfast.cli.render.output"


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "typer.echo(x)",
        "console().print(x)",
        "rich.console.Console()",
        "sys.stdout.write(x)",
        "from rich import print",
    ],
)
def test_a_bypass_of_the_output_would_be_seen(source: str) -> None:
    assert bypasses_the_output(source)
