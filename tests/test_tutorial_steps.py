"""The tutorial about an order that two people approve: typed as it stands, it prints what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from reader import ROOT, Block, Terminal, blocks, first_terminal, has, of, second_terminal, settled, surroundings

PAGE = blocks((ROOT / "docs" / "tutorial-steps.md").read_text())


def test_it_prints_what_it_says(tmp_path: Path, holdfast_dsn: str) -> None:
    write_down(tmp_path)
    environment = surroundings(HOLDFAST_DSN=holdfast_dsn)
    own = f"http://127.0.0.1:{environment['HOLDFAST_PORT']}"
    page = [Block(language, text.replace("http://127.0.0.1:8080", own)) for language, text in PAGE]
    pairs = [(block, after) for block, after in pairwise(page) if block.language == "sh"]
    [check, up, *uses] = pairs
    with first_terminal(tmp_path, environment) as terminal:
        follow(terminal, *check)
        with second_terminal(up[0].text.strip(), tmp_path, environment):
            for commands, shown in uses:
                follow(terminal, commands, shown)


def write_down(directory: Path) -> None:
    [orders] = of("yaml", PAGE)
    shop, test = of("python", PAGE)
    (directory / "definitions").mkdir()
    (directory / "definitions" / "orders.yaml").write_text(orders)
    (directory / "shop.py").write_text(shop)
    (directory / "test_orders.py").write_text(test)


def follow(terminal: Terminal, commands: Block, shown: Block) -> None:
    seen = terminal.types(commands.text)
    if shown.language == "json":
        assert has(json.loads(seen), json.loads(shown.text)), seen
        return
    for _ in range(20):  # a reader is slower than the worker, a test may not be
        if not seen.startswith("instance") or "status    running" not in seen:
            break
        seen = terminal.types(commands.text)
    assert settled(seen) == settled(shown.text)


def test_its_own_test_passes(tmp_path: Path) -> None:
    write_down(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "test_orders.py"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout
