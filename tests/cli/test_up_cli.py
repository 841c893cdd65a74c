"""`holdfast up` and `holdfast server` as real processes: started, used, killed, started again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
from cli_flows import answered, refused, told
from cli_process import HERE, command
from cli_served import LEAVE
from cli_server import running

ROOT = HERE.parent.parent
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


def test_killed_and_started_again(holdfast_dsn: str, tmp_path: Path) -> None:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    file = definitions / "leave.yaml"
    file.write_text(LEAVE)
    words = ("up", "cli_served:configure", "--dir", str(definitions), "--port", "0", "--json", "--dsn", holdfast_dsn)
    with running(tmp_path / "first.log", *words, "--watch") as up:
        where = ("--url", up.url)
        begin = ("start", "leave.request", "--input", '{"days": 3}', "--by", "ann", "--wait")
        id = answered(NOWHERE, *begin, *where)["id"]
        file.write_text(LEAVE.replace("to: book", "to: bok"))
        line = next(number for number, line in enumerate(LEAVE.splitlines(), start=1) if "to: book" in line)
        up.says(f"{file}:{line}:28: STEPS_TARGET_UNKNOWN")
        assert answered(NOWHERE, *begin, *where)["flow_version"] == 1
        file.write_text(LEAVE.replace("minimum: 1", "minimum: 2"))
        up.says("leave.request version 2 is published.")
        assert answered(NOWHERE, *begin, *where)["flow_version"] == 2
        assert up.ends(signal.SIGKILL) == -signal.SIGKILL
    with running(tmp_path / "second.log", *words) as up:
        where = ("--url", up.url)
        assert '"version": 2, "new": false' in up.log
        advanced = answered(NOWHERE, "advance", id, "approved", "--by", "ben", *where)
        assert (advanced["flow_version"], advanced["data"]["booking"]) == (1, "B-3")
        assert up.ends(signal.SIGTERM) == 0
    assert refused(NOWHERE, "show", id, *where) == (7, "SERVER_UNREACHABLE")


def test_a_server_alone_believes_nobody(holdfast_dsn: str, tmp_path: Path) -> None:
    told(holdfast_dsn, "db", "migrate")
    with running(tmp_path / "log", "server", "--port", "0", "--json", HOLDFAST_DSN=holdfast_dsn) as server:
        url = server.url
        assert refused(NOWHERE, "list", "--url", url, "--subject", "ann") == (9, "CREDENTIALS_MISSING")
        assert server.ends(signal.SIGINT) == 0
    with running(
        tmp_path / "log", "server", "--port", "0", "--development", "--json", HOLDFAST_DSN=holdfast_dsn
    ) as server:
        assert answered(NOWHERE, "list", "--url", server.url, "--subject", "ann")["items"] == []
        assert "THE DEVELOPMENT IDENTITY IS ON" in server.log


POLICIES = """
from holdfast.server.auth.cedar import CedarPolicies

PERMIT = 'permit (principal in Role::"boss", action == Action::"use", resource == Capability::"leave:ask");'


def resolver():
    return CedarPolicies(PERMIT, capabilities=["leave:ask"])
"""


def test_policies_and_limits_of_a_server_alone(holdfast_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "leave.yaml").write_text(LEAVE.replace("version: 1", 'version: 1\n    capabilities: ["leave:ask"]'))
    (tmp_path / "house_rules.py").write_text(POLICIES)
    told(holdfast_dsn, "db", "migrate")
    told(holdfast_dsn, "publish", str(tmp_path / "leave.yaml"))
    words = ("server", "--port", "0", "--development", "--json")
    around = {"HOLDFAST_DSN": holdfast_dsn, "HOLDFAST_SERVER_MOST_BODY_BYTES": "200"}
    with running(tmp_path / "log", *words, cwd=tmp_path, HOLDFAST_RESOLVER="house_rules:resolver", **around) as server:
        path = f"{server.url}/ui/workflows/leave.request/start"

        def start(role: str, days: object = 3) -> httpx2.Response:
            said = {"X-Holdfast-Subject": "ann", "X-Holdfast-Roles": role, "X-Holdfast-Capabilities": "leave:ask"}
            return httpx2.post(path, json={"days": days}, headers=said | {"Prefer": "respond-async"}, trust_env=False)

        assert start("boss").is_success
        assert (start("clerk").status_code, start("clerk").json()["code"]) == (403, "CAPABILITY_MISSING")
        assert (start("boss", "x" * 300).status_code, start("boss", "x" * 300).json()["code"]) == (
            413,
            "BODY_TOO_LARGE",
        )
        assert server.ends(signal.SIGTERM) == 0
    for option, complaint in (("house_rules", "is not of the form"), ("nowhere:x", "ModuleNotFoundError")):
        refusal = command(*words, "--resolver", option, HOLDFAST_DSN=holdfast_dsn)
        assert refusal.returncode == 1
        error = json.loads(refusal.stderr.splitlines()[-1])["error"]
        assert (error["code"], complaint in error["message"]) == ("SETTING_INVALID", True)
    refusal = command(*words, HOLDFAST_DSN=holdfast_dsn, HOLDFAST_SERVER_BURST="many")
    assert (refusal.returncode, "HOLDFAST_SERVER_BURST is 'many'" in refusal.stderr) == (1, True)


def test_where_it_cannot_listen(holdfast_dsn: str) -> None:
    for words in (("up",), ("server", "--development")):
        exposed = command(*words, "--host", "0.0.0.0", HOLDFAST_DSN=holdfast_dsn)
        assert (exposed.returncode, "[DEVELOPMENT_EXPOSED]" in exposed.stderr) == (1, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("server", "--port", str(taken.getsockname()[1]), HOLDFAST_DSN=holdfast_dsn)
    assert (done.returncode, "[ADDRESS_UNAVAILABLE]" in done.stderr) == (1, True)
    assert "[FILE_NOT_FOUND]" in command("up", "--dir", "nowhere", HOLDFAST_DSN=holdfast_dsn).stderr


def test_the_page_about_the_first_process_is_true(holdfast_dsn: str, tmp_path: Path) -> None:
    """Its commands, as a reader types them, on another port than the one it names."""
    page = (ROOT / "docs" / "first-process.md").read_text()
    write, up, use, curl = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len([line for line in (*up.splitlines(), *use.splitlines()) if line.startswith(("holdfast", "ID="))]) <= 8
    assert "leave.request version 1" in typed(write, tmp_path)
    arguments = up.split()[1:]
    with running(
        tmp_path / "log", *arguments, "--port", "0", "--json", cwd=tmp_path, HOLDFAST_DSN=holdfast_dsn
    ) as process:
        url = process.url
        text = typed(f"{use}{curl}".replace("http://127.0.0.1:8080", url), tmp_path)
    expected = re.search(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert expected is not None
    for line in expected[1].splitlines():
        assert line in text
    assert '"note":"Enjoy!"' in text.replace(" ", "")


def typed(script: str, cwd: Path) -> str:
    holdfast = f'holdfast() {{ "{sys.executable}" -m holdfast.cli "$@"; }}\n'
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        ["bash", "-euc", holdfast + script], check=False, cwd=cwd, env={**kept, "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shell_completes(holdfast_dsn: str) -> None:
    def offered(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        found = command(
            _HOLDFAST_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count, HOLDFAST_DSN=holdfast_dsn
        )
        return found.stdout.split()

    told(holdfast_dsn, "publish", "cli_apps:FLOW")
    assert offered("holdfast time") == ["timeline"]
    assert offered("holdfast start c") == ["cli"]


def test_a_bench_leaves_nothing_behind(holdfast_dsn: str) -> None:
    facts = answered(holdfast_dsn, "bench", "--instances", "20", "--steps", "2")
    assert (facts["instances"], facts["steps"]) == (20, 40)
    assert answered(holdfast_dsn, "list")["items"] == []
