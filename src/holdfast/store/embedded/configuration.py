"""The configuration files of the embedded server, written anew before each start."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.errors import StoreError
from holdfast.store.embedded.account import Account
from holdfast.store.embedded.binaries import Installation
from holdfast.store.embedded.layout import Layout
from holdfast.store.embedded.memory import buffers

# fsync, synchronous_commit and full_page_writes stay at their safe defaults.
_BASE = {
    "max_connections": "200",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "logging_collector": "on",
    "log_filename": "postgresql-%Y%m%d-%H%M%S.log",
    "log_rotation_size": "16MB",
    "log_rotation_age": "0",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
_NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


def server_conf(installation: Installation, layout: Layout, settings: Mapping[str, str]) -> str:
    chosen = {
        **_BASE,
        "shared_buffers": buffers(),
        "log_directory": str(layout.log),
        "wal_compression": "lz4" if installation.has_lz4 else "pglz",
    }
    if installation.has_module("pg_stat_statements"):
        chosen["shared_preload_libraries"] = "pg_stat_statements"
    chosen.update(settings)
    return "".join(f"{_checked_name(name)} = {_quoted(name, value)}\n" for name, value in chosen.items())


def hba_conf() -> str:
    return "local all all peer map=holdfast\n"


def ident_conf(account: Account) -> str:
    """Identity map: the owner of the data, and root, may be any role; other users of the machine have no access."""
    names = dict.fromkeys((account.name, "root"))
    return "".join(f'holdfast "{name}" all\n' for name in names)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise StoreError(f"{name!r} is not the name of a PostgreSQL setting.", code="SETTING_INVALID")
    return name


def _quoted(name: str, value: str) -> str:
    if not value.isprintable():
        raise StoreError(f"The value of {name} has characters that cannot be printed.", code="SETTING_INVALID")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
