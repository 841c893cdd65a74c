"""`holdfast db` and `holdfast version`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli_process import command

import holdfast
from holdfast.cli.render.output import without_password
from holdfast.store.admin.schema import latest


def answer(*arguments: str, **environment: str) -> Any:
    done = command(*arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_life_of_an_embedded_server(home: Path) -> None:
    where = {"HOLDFAST_HOME": str(home)}
    directory = answer("db", "path", **where)["directory"]
    assert Path(directory).parent == home
    assert command("db", "path", **where).stdout.strip() == directory

    absent = command("db", "status", "--json", **where)
    assert absent.returncode == 3
    assert json.loads(absent.stdout) == {"server": "embedded", "running": False, "directory": directory}
    assert not Path(directory).exists()  # looking changes nothing

    started = answer("db", "start", **where)
    assert started == answer("db", "start", **where)
    assert started["directory"] == directory
    assert answer("db", "status", **where) == {**started, "schema": 0, "latest": latest()}

    applied = answer("db", "migrate", **where)
    assert applied["applied"] == list(range(1, latest() + 1))
    assert answer("db", "migrate", **where)["applied"] == []
    assert answer("db", "status", **where)["schema"] == latest()
    assert directory in command("db", "status", **where).stdout

    assert answer("db", "stop", **where) == {"stopped": True}
    assert answer("db", "stop", **where) == {"stopped": False}
    assert command("db", "status", **where).returncode == 3


def test_a_given_address_is_used_instead(holdfast_dsn: str) -> None:
    given = {"HOLDFAST_DSN": holdfast_dsn}
    assert answer("db", "migrate", **given)["applied"] == []
    found = answer("db", "status", **given)
    assert (found["server"], found["running"], found["schema"]) == ("given", True, latest())
    refused = command("db", "start", **given)
    assert refused.returncode == 1
    assert refused.stderr.startswith("[EMBEDDED_NOT_WANTED] ")


def test_an_error_is_one_line_with_its_exit_code(tmp_path: Path) -> None:
    for action in ("status", "migrate"):
        failed = command("db", action, HOLDFAST_DSN=f"postgresql://ann:hush@/x?host={tmp_path}")
        assert failed.returncode == 7
        assert failed.stderr.startswith("[STORE_UNREACHABLE] ")
        assert "Traceback" not in failed.stderr
        assert "hush" not in failed.stderr + failed.stdout
    wrong = command("db", "migrate", HOLDFAST_DSN="nonsense")
    assert wrong.stderr.startswith("[SETTING_INVALID] ")


def test_an_unusable_argument_is_a_usage_error() -> None:
    for arguments in (["worker"], ["worker", "a:b", "--processes=0"], ["db", "fly"], ["worker", "a:b", "--lease=x"]):
        refused = command(*arguments)
        assert refused.returncode == 2, refused.stderr
        assert "Traceback" not in refused.stderr


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://ann:hush@db:5432/x") == "postgresql://ann:***@db:5432/x"
    assert without_password("postgresql://ann@db/x") == "postgresql://ann@db/x"
    assert without_password("postgresql:///x?user=ann&password=hush&port=1") == (
        "postgresql:///x?user=ann&password=***&port=1"
    )
    assert without_password("host=db password='hu sh' user=ann") == "host=db password=*** user=ann"


def test_version() -> None:
    assert answer("version")["holdfast"] == holdfast.__version__
    script = Path(sys.executable).with_name("holdfast")
    installed = subprocess.run([script, "--version"], check=True, capture_output=True, text=True)
    assert installed.stdout.startswith(f"holdfast {holdfast.__version__} (schema {latest()}")
