"""The state diagram of a machine."""

from __future__ import annotations

import re

from machine_samples import blueprint, edited

from holdfast.doors.machine import MachineDefinition


def test_states_arrows_the_beginning_and_the_ends() -> None:
    assert MachineDefinition.parse(blueprint()).chart() == (
        "stateDiagram-v2\n"
        '    state "Done" as s1\n'
        '    state "New" as s2\n'
        '    state "Open" as s3\n'
        "    [*] --> s2\n"
        "    s2 --> s3: Go (1)\n"
        "    s3 --> s3: Again (3)\n"
        "    s3 --> s1: End (2)\n"
        "    s1 --> [*]\n"
    )


def test_names_conditions_and_guards_are_escaped() -> None:
    name = 'a"b]: %%{init}\u202e<b>;`'
    plan = edited(
        blueprint(),
        (("states", 1, "name"), name),
        (("transitions", 0, "to"), name),
        (("transitions", 1, "from"), name),
        (("transitions", 2, "from"), name),
        (("transitions", 2, "to"), name),
        (("transitions", 1, "when"), "input.n >= 3 && input.s == 'x'"),
        (("transitions", 1, "guard"), "a:b --> c"),
    )
    for line in MachineDefinition.parse(plan).chart().splitlines()[1:]:
        bare = re.sub(r"#\d+;", "", line)
        assert re.fullmatch(r'    (state "[\w .()-]*" as s\d|(\[\*\]|s\d) --> (\[\*\]|s\d)(: [\w .()-]+)?)', bare), line
