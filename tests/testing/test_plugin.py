"""The pytest plugin, used as a stranger's suite uses it: sessions of their own, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.store import embedded
from holdfast.store.admin.schema import current, latest
from holdfast.testing import Database, copied_database, running_server
from holdfast.testing.database import COPIES, TEMPLATES, template_name
from holdfast.testing.server import VARIABLE, shared_directory

SUITE = """
import psycopg
import pytest

@pytest.mark.parametrize("number", range(3))
def test_a_clean_database_each(holdfast_dsn, number):
    with psycopg.connect(holdfast_dsn) as connection:
        connection.execute("create table public.mark ()")
        print(connection.info.dbname, connection.info.host)
"""


def run_suite(folder: Path, *arguments: str, **environment: str) -> str:
    (folder / "test_suite.py").write_text(SUITE)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", *arguments, "test_suite.py"],
        cwd=folder,
        env={**{name: value for name, value in os.environ.items() if name != VARIABLE}, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def copies_in(output: str) -> list[str]:
    return [line.split()[0] for line in output.splitlines() if line.startswith(COPIES)]


def databases(server: str) -> list[str]:
    with psycopg.connect(server) as admin:
        return [row[0] for row in admin.execute("select datname from pg_database")]


def test_the_database_has_the_current_schema_and_is_empty(holdfast_dsn: str) -> None:
    assert current(holdfast_dsn) == latest()
    with psycopg.connect(holdfast_dsn) as connection:
        assert connection.execute("select count(*) from holdfast.instances").fetchone() == (0,)


def test_the_address_is_the_one_of_the_database(holdfast_database: Database, holdfast_dsn: str) -> None:
    with psycopg.connect(holdfast_dsn) as connection:
        assert connection.info.dbname == holdfast_database.name


def test_every_test_gets_its_own_and_leaves_only_the_template(holdfast_server: str, tmp_path: Path) -> None:
    output = run_suite(tmp_path, **{VARIABLE: holdfast_server})
    left = databases(holdfast_server)
    assert len(set(copies_in(output))) == 3
    assert not set(copies_in(output)) & set(left)
    assert template_name() in left


def test_an_embedded_server_serves_all_workers_and_stops_with_the_last(home: Path, tmp_path: Path) -> None:
    output = run_suite(tmp_path, "-n", "2", HOLDFAST_HOME=str(home))
    [directory] = [mark.parent for mark in home.glob("*/holdfast-embedded")]
    hosts = {line.split()[1] for line in output.splitlines() if line.startswith(COPIES)}
    assert hosts == {str(directory / "server" / "run")}
    assert len(set(copies_in(output))) == 3
    assert embedded.status(directory) is None

    with psycopg.connect(embedded.start(directory).dsn, autocommit=True) as admin:
        admin.execute("create database holdfast_test_of_a_killed_session")
        admin.execute("create database holdfast_template_of_another_schema")
    run_suite(tmp_path, HOLDFAST_HOME=str(home))
    assert embedded.status(directory) is None
    left = databases(embedded.start(directory).dsn)
    assert [name for name in left if name.startswith((COPIES, TEMPLATES))] == [template_name()]


def test_a_session_that_ends_leaves_the_server_to_the_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.delenv(VARIABLE, raising=False)
    with running_server() as server, copied_database(server) as mine:
        run_suite(tmp_path)
        assert mine.name in databases(server)
    assert embedded.status(shared_directory()) is None


def test_the_server_lives_in_memory_where_that_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setattr("holdfast.testing.server.MEMORY", tmp_path)
    monkeypatch.setattr("holdfast.testing.server.ENOUGH_MEMORY", 0)
    durable = embedded.default_directory()
    ours = tmp_path / f"holdfast-{os.geteuid()}"
    assert shared_directory() == ours / f"test-{durable.name}"
    ours.chmod(0o777)  # anybody could have put something in there
    assert shared_directory() == durable.with_name(f"test-{durable.name}")
    ours.rmdir()
    ours.symlink_to("/")
    assert shared_directory() == durable.with_name(f"test-{durable.name}")
    ours.unlink()
    monkeypatch.setattr("holdfast.testing.server.ENOUGH_MEMORY", 1 << 60)
    assert shared_directory() == durable.with_name(f"test-{durable.name}")
    assert not ours.exists()


def test_a_wrong_address_is_explained(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py"],
        cwd=tmp_path,
        env={**os.environ, VARIABLE: "postgresql://nobody@127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert "STORE_UNREACHABLE" in answer.stdout
    assert VARIABLE in answer.stdout


def test_the_plugin_alone_loads_no_database_code() -> None:
    script = "import sys, holdfast.testing.plugin; print('holdfast.testing.database' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
