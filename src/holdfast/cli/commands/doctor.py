"""`holdfast doctor`: examine the database, for people and for monitoring."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import say, show_json
from holdfast.settings import Settings
from holdfast.store import embedded
from holdfast.store.admin.doctor import SEVERITIES, Finding, Report, examine


def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Examine the database. Exit code 0: all well, 1: needs attention, 2: something is wrong now."""
    report = examine(address())
    if json:
        findings = msgspec.to_builtins(report.findings)
        show_json({"severity": report.severity, "exit_code": report.exit_code, "findings": findings})
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def address() -> str:
    """The database of HOLDFAST_DSN, else the embedded one, which is started if need be."""
    return Settings.from_environment().dsn or embedded.start().dsn


def _show(report: Report) -> None:
    for finding in sorted(report.findings, key=_gravity):
        say(f"{finding.severity:<8}  {finding.code:<18}  {finding.message}")
        if finding.action:
            say(f"{'':<30}{finding.action}")


def _gravity(finding: Finding) -> int:
    return -SEVERITIES.index(finding.severity)
