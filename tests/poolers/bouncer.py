"""PgBouncer itself, in transaction mode, in front of the server of the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

PORT: Final = 6432
FETCHED: Final = Path(__file__).parents[2] / "build" / "pooler"
_ELSEWHERE: Final = ("/usr/sbin", "/usr/local/sbin", str(FETCHED / "usr" / "sbin"))
_START_PATIENCE: Final = 10.0

CONFIGURATION: Final = """
[databases]
* = host={server} port={server_port} user={user}

[pgbouncer]
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 1000
listen_addr =
listen_port = {port}
unix_socket_dir = {place}
auth_type = any
server_round_robin = 1
server_login_retry = 1
logfile = {place}/pgbouncer.log
pidfile = {place}/pgbouncer.pid
"""


def find() -> str | None:
    """Debian keeps it where ordinary users do not look."""
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), *_ELSEWHERE)))


@contextmanager
def pgbouncer(dsn: str, size: int) -> Iterator[str]:
    """The address that leads through a pool of that many connections per login and database."""
    program = find()
    assert program is not None, "PgBouncer is not installed; `make pooler` fetches it on Debian and Ubuntu"
    options = conninfo_to_dict(dsn)
    owner = Path(str(options["host"])).stat().st_uid  # whoever may enter the directory of the server's socket
    place = Path(tempfile.mkdtemp(prefix="hf-pool-"))
    os.chown(place, owner, -1)
    configuration = place / "pgbouncer.ini"
    configuration.write_text(
        CONFIGURATION.format(
            server=options["host"],
            server_port=options.get("port", 5432),
            user=options["user"],
            size=size,
            port=PORT,
            place=place,
        )
    )
    os.chown(configuration, owner, -1)
    switch = ["-u", pwd.getpwuid(owner).pw_name] if os.geteuid() == 0 else []
    libraries = os.pathsep.join(str(path) for path in (FETCHED / "usr" / "lib").glob("*-linux-*"))
    process = subprocess.Popen(
        [program, "-q", *switch, str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
    )
    try:
        through = make_conninfo(dsn, host=str(place), port=PORT)
        _await(through, place / "pgbouncer.log")
        yield through
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(place)


def _await(dsn: str, log: Path) -> None:
    deadline = time.monotonic() + _START_PATIENCE
    while True:
        try:
            psycopg.connect(dsn).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                print(log.read_text() if log.exists() else "PgBouncer has said nothing")
                raise
            time.sleep(0.02)
