"""How defects are made: another text for a statement, refused when the text it replaces is no longer there."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.pg.statements import SQL, TEXTS, Statement


class Outdated(Exception):
    """The engine has changed and the defect no longer breaks it: it has to be written anew."""


def reword(name: str, *changes: tuple[str, str]) -> None:
    """Replace parts of `sql/<name>.sql` in this process, before any session prepares it."""
    text = SQL.all[name].sql.decode()
    for old, new in changes:
        if old not in text:
            raise Outdated(f"{name}.sql has no {old!r}")
        text = text.replace(old, new)
    rewrite(name, lambda _: text)


def rewrite(name: str, write: Callable[[str], str]) -> None:
    """In place: modules hold on to the statement they imported, and sessions to the texts they prepare."""
    statement = SQL.all[name]
    statement.__init__(name, write(statement.sql.decode()))
    add(statement)


def add(statement: Statement) -> None:
    """A statement that every session of this process can run."""
    SQL.all[statement.name.decode()] = statement
    TEXTS[statement.name] = statement.sql


def replace(owner: object, name: str, value: object) -> None:
    if not hasattr(owner, name):
        raise Outdated(f"{owner!r} has no {name}")
    setattr(owner, name, value)
