"""Every statement of the store: it says what it is for, somebody runs it, it fits the schema and the rights it has."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from store_plans import Db, be_tenant, pin, prepare

import holdfast
from holdfast.store.pg.statements import SQL
from holdfast.testing import copied_database

SOURCE = Path(holdfast.__file__).parent
FILES = sorted((SOURCE / "store" / "sql").rglob("*.sql"))
PYTHON = {path: path.read_text() for path in SOURCE.rglob("*.py")}

# Run in the role of an organisation, behind row-level security.
TENANTS = (
    "list_effects", "list_effects_of_instance", "read_effect", "list_events",
    "list_instances", "list_instances_by_business_key", "list_instances_by_status",
    "list_late_events",
    "list_steps", "page_events", "page_steps", "read_instance", "list_finished_tasks", "list_open_tasks",
    "list_free_tasks",
    "list_task_events",
    "list_tasks_of_assignee", "list_tasks_of_instance", "list_tasks_of_role", "read_task",
    "list_dead_letters", "list_dead_letters_of_instance", "read_dead_letter", "read_runtime",
    "list_api_keys", "list_flows", "page_flows", "page_versions",
    "list_instances_by_key", "list_instances_by_parent", "read_flow",
    "list_results", "read_start",
    "page_contract_events", "page_contract_versions", "page_contracts", "page_patches", "read_contract", "read_draft",
    "read_effective", "read_numbers", "read_patch", "page_decision_tables", "read_decision_table",
)  # fmt: skip
# These change the role, so they are sent before any other is taken.
BEFORE_A_ROLE = (
    "lend_transaction",
    "pin_impatiently",
    "pin_settled",
    "pin_transaction",
    "use_tenant",
    "use_worker",
)


@pytest.fixture(scope="module")
def dsn(holdfast_server: str) -> Iterator[str]:
    """One database for all: nothing is written here."""
    with copied_database(holdfast_server) as database:
        yield database.dsn


@pytest.fixture
def db(dsn: str) -> Iterator[Db]:
    with psycopg.connect(dsn, prepare_threshold=None) as connection:
        yield connection


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_line_is_a_sentence_of_purpose(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert re.fullmatch(r"-- [A-Z].{15,}[.?]", first), first


OF_A_HISTORY = [path for path in FILES if re.search(r"from holdfast\.(steps|events)\b", path.read_text())]


@pytest.mark.parametrize("path", OF_A_HISTORY, ids=lambda path: path.stem)
def test_a_history_is_ordered_by_revision(path: Path) -> None:
    """Commits may share a moment, so no order of steps or events ends with one. Queues have an order of their own."""
    for order in re.findall(r"order by ([^\n]+)", path.read_text()):
        if "created_at" in order:
            assert re.search(r"\b(opened_)?version\b.*\b(opened_)?ordinal\b", order), order


def test_histories_are_found() -> None:
    assert {"list_events", "page_events", "list_steps", "page_steps", "list_last_steps"} <= {
        p.stem for p in OF_A_HISTORY
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_holds_one_statement_named_verb_noun(path: Path) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", path.stem)
    assert ";" not in re.sub(r"--[^\n]*", "", path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_used(path: Path) -> None:
    # As SQL.name, or as a quoted name where the order of a commit or the verbs of a borrowed connection are listed.
    used = re.compile(rf"\bSQL\.{path.stem}\b|\"{path.stem}\"")
    assert [source for source, text in PYTHON.items() if used.search(text)], f"nobody runs {path.name}"


def test_every_name_that_is_used_has_a_file() -> None:
    names = {name for text in PYTHON.values() for name in re.findall(r"\bSQL\.([a-z]+(?:_[a-z]+)+)\b", text)}
    assert names
    assert names <= set(SQL.all)


def test_a_name_without_a_file_is_an_error_at_import() -> None:
    with pytest.raises(AttributeError, match=r"no folder below sql/ has read_nothing\.sql"):
        SQL.read_nothing  # noqa: B018


def test_files_are_read_whatever_the_encoding_of_the_place() -> None:
    """Also in a locale without UTF-8: wherever Python would guess an encoding, it warns, and warnings are errors."""
    program = (
        "import holdfast.cli.app, holdfast.server.app\n"
        "from holdfast.store import connections\n"
        "from holdfast.store.admin import schema\n"
        "from holdfast.store.embedded import binaries, memory\n"
        "connections._for_drivers('start_instance')\n"
        "schema.migrations(), binaries.find_installation(), memory.buffers()"
    )
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program],
        check=False,
        env={"PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(SQL.all) - set(TENANTS) - set(BEFORE_A_ROLE)))
def test_a_worker_may_prepare_and_plan_it(db: Db, name: str) -> None:
    pin(db)
    _plan(db, name)


@pytest.mark.parametrize("name", TENANTS)
def test_a_tenant_may_prepare_and_plan_it(db: Db, name: str) -> None:
    be_tenant(db, "acme")
    _plan(db, name)


@pytest.mark.parametrize("name", BEFORE_A_ROLE)
def test_any_login_may_prepare_it(db: Db, name: str) -> None:
    _plan(db, name)


def _plan(db: Db, name: str) -> None:
    """Planning checks the rights on tables and functions too; a Parse alone would not."""
    count = prepare(db, name)
    nothing = ", ".join(["null"] * count)
    db.execute(f"explain execute {name}{f'({nothing})' if count else ''}")
