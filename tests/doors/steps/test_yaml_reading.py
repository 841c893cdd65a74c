"""YAML is read as version 1.2 says, with places, and hostile text costs little and is refused with a reason."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from steps_yaml import codes, problems, sound

from holdfast.doors.durations import read_duration
from holdfast.doors.steps.load import load_steps
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.reading import DEEPEST, LARGEST, MOST_NODES, read_yaml
from holdfast.doors.yaml.tree import plain

STEPS = """\
    steps:
      - {id: ask, type: action, metadata: {%s}}
      - {id: over, type: terminal}
    transitions:
      - {from: ask, to: over, event: sent}
"""


def metadata(text: str) -> object:
    return sound(f"workflows:\n  - id: w\n{STEPS % text}").steps[0].metadata


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: Yes", "Yes"),
        ("a: true", True),
        ("a: FALSE", False),
        ("a: ~", None),
        ("a: ", None),
        ("a: 012", 12),
        ("a: 0o17", 15),
        ("a: 0xff", 255),
        ("a: 1_000", "1_000"),
        ("a: 12:30:00", "12:30:00"),
        ("a: 2026-01-31", "2026-01-31"),
        ("a: 1.5e3", 1500.0),
        ("a: .5", 0.5),
        ("a: '5'", "5"),
        ('a: "x\\u0041"', "xA"),
        ("a: =", "="),
        ('a: "\\ud83d\\ude00"', "😀"),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert metadata(text) == {"a": value}


def test_an_old_directive_changes_nothing() -> None:
    findings = Findings("f.yaml")
    tree, _ = read_yaml("%YAML 1.1\n---\na: no\n", findings)
    assert tree is not None
    assert plain(tree) == {"a": "no"}


def test_aliases_repeat_what_their_anchors_hold() -> None:
    assert metadata("a: &x {b: [1, 2]}, c: *x") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "line", "column", "code"),
    [
        ("", 1, 1, "YAML_EMPTY"),
        ("# nothing\n", 1, 1, "YAML_EMPTY"),
        ("workflows: [", 1, 13, "YAML_SYNTAX"),
        ("workflows:\n\t- id: a", 2, 1, "YAML_SYNTAX"),
        ("workflows:\n  - id: 'a", 2, 11, "YAML_SYNTAX"),
        ("workflows:\n - id: a\n- id: b", 3, 1, "YAML_SYNTAX"),
        ("a: b\n@c: d", 2, 1, "YAML_SYNTAX"),
        ("a: b: c", 1, 5, "YAML_SYNTAX"),
        ("a: *b", 1, 4, "YAML_ALIAS"),
        ("a: &b [*b]", 1, 8, "YAML_ALIAS"),
        ("workflows:\n  - id: a\0b", 2, 10, "YAML_CHARACTER"),
        ("a: \ud800", 1, 4, "YAML_CHARACTER"),
        ("a: \x07", 1, 4, "YAML_CHARACTER"),
        ("a: 1\n---\nb: 2", 2, 1, "YAML_SEVERAL_DOCUMENTS"),
        ("a: !!python/object/apply:os.system [ls]", 1, 4, "YAML_TAG"),
        ("a: !ruby/object x", 1, 4, "YAML_TAG"),
        ("a: !!binary aGk=", 1, 4, "YAML_TAG"),
        ("a: 1\n1: b", 2, 1, "YAML_KEY_NOT_TEXT"),
        ("a: 1\nnull: b", 2, 1, "YAML_KEY_NOT_TEXT"),
        ("a: 1\ntrue: b", 2, 1, "YAML_KEY_NOT_TEXT"),
        ("? [a, b]\n: c", 1, 3, "YAML_KEY_NOT_TEXT"),
        ("a: 1\nb: 2\na: 3", 3, 1, "YAML_DUPLICATE_KEY"),
        ("a: .nan", 1, 4, "YAML_NUMBER"),
        ("a: -.inf", 1, 4, "YAML_NUMBER"),
        ("a: 1e999", 1, 4, "YAML_NUMBER"),
        ("a: " + "9" * 5000, 1, 4, "YAML_NUMBER"),
        ("a: 0x" + "f" * 5000, 1, 4, "YAML_NUMBER"),
        ("a: '\\ud800'\nb: \"\\ud800\"", 2, 4, "YAML_CHARACTER"),
        ('a: "\\0"', 1, 4, "YAML_CHARACTER"),
    ],
)
def test_text_that_is_refused_names_its_place(text: str, line: int, column: int, code: str) -> None:
    assert (line, column, code) in problems(text)
    assert load_steps(text).workflows == ()


@pytest.mark.parametrize("text", ["[]", "x", "5", "- a", "workflows: x", "workflows: {}", "workflows: []", "a: b"])
def test_a_file_holds_workflows(text: str) -> None:
    assert codes(text)


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
)

HOSTILE = {
    "alias bomb": (BOMB, "YAML_TOO_COMPLEX"),
    "alias bomb in keys": (f"{BOMB}\n? *a11\n: x", "YAML_TOO_COMPLEX"),
    "brackets": ("[" * 100_000, "YAML_TOO_DEEP"),
    "braces": ("{a: " * 50_000, "YAML_TOO_DEEP"),
    "dashes": ("- " * 100_000, "YAML_TOO_DEEP"),
    "questions": ("? " * 100_000, "YAML_TOO_DEEP"),
    "indents": ("\n".join(f"{' ' * n}a:" for n in range(300)), "YAML_TOO_DEEP"),
    "many values": ("a: [" + "x, " * (MOST_NODES + 10) + "]", "YAML_TOO_COMPLEX"),
    "many keys": ("\n".join(f"k{n}: {n}" for n in range(MOST_NODES)), "YAML_TOO_COMPLEX"),
    "many anchors": ("\n".join(f"k{n}: &a{n} {n}" for n in range(MOST_NODES)), "YAML_TOO_COMPLEX"),
    "colons": (":" * 100_000, "YAML_SYNTAX"),
    "huge": ("a" * (LARGEST + 1), "YAML_TOO_LARGE"),
    "huge in bytes": ("ä" * (LARGEST // 2 + 1), "YAML_TOO_LARGE"),
    "one long text": ("workflows: " + "x " * 100_000, "STEPS_TYPE_WRONG"),
    "comments": ("# x\n" * 50_000, "YAML_EMPTY"),
    "directives": ("%A b\n" * 20_000 + "---\na: b", "STEPS_KEY_UNKNOWN"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_time(name: str) -> None:
    text, code = HOSTILE[name]
    begun = time.process_time()
    found = codes(text)
    assert code in found
    assert time.process_time() - begun < 10
    assert len(found) < 10


@pytest.mark.parametrize("name", ["alias bomb", "alias bomb in keys", "brackets", "huge"])
def test_hostile_text_takes_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        codes(HOSTILE[name][0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_forty_levels_are_enough() -> None:
    assert codes("[" * DEEPEST + "]" * DEEPEST) == ["STEPS_TYPE_WRONG"]
    assert codes("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)) == ["YAML_TOO_DEEP"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("72h", 259_200),
        ("15m", 900),
        ("90s", 90),
        ("1d12h", 129_600),
        ("2w", 1_209_600),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("1h30m15s", 5415),
        ("P3D", 259_200),
        ("PT15M", 900),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("PT0.5S", 0.5),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "h",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "-5m",
        "5 m",
        "m5",
        "1h 30m",
        "30m1h",
        "5min",
        "1e3s",
        "٣m",
        "P1DT",
        "1000000w",
    ],
)
def test_no_durations(text: str) -> None:
    assert read_duration(text) is None
