"""A new user has nothing but the README: its ten commands, typed as they stand, print what it says."""

from __future__ import annotations

import re
from pathlib import Path

from reader import ROOT, blocks, first_terminal, of, second_terminal, settled, surroundings

README = (ROOT / "README.md").read_text()
SECTION = blocks(README[README.index("## Your own process in ten commands") :].split("\n## ")[0])


def test_there_are_ten_commands() -> None:
    typed = re.sub(r"<<'END'\n.*?^END\n", "\n", "".join(of("sh", SECTION)), flags=re.MULTILINE | re.DOTALL)
    assert len([line for line in typed.splitlines() if line.strip()]) <= 10


def test_they_print_what_the_readme_says(tmp_path: Path, home: Path) -> None:
    """On an embedded PostgreSQL that they create."""
    write, up, use = of("sh", SECTION)
    [expected] = of("console", SECTION)
    environment = surroundings(HOLDFAST_HOME=str(home))
    with first_terminal(tmp_path, environment) as terminal:
        assert terminal.types(write).endswith("definitions/leave.yaml: leave.request version 1, 3 steps\n")
        with second_terminal(up.strip(), tmp_path, environment):
            assert settled(terminal.types(use)) == settled(expected)
