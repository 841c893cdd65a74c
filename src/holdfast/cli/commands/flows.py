"""`holdfast flows`: list published flows, and print them as written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from holdfast.cli.completion import complete_flow
from holdfast.cli.render.output import console, say, show_all, show_text, table
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import Place, anywhere, place
from holdfast.doors.printed import mermaid_of, picture_of
from holdfast.doors.registry import open_source
from holdfast.errors import Refused
from holdfast.store.reads.flows import FlowDocument, FlowVersion
from holdfast.views.spans import shown


class Form(StrEnum):
    TABLE = "table"
    CODE = "code"
    MERMAID = "mermaid"
    PICTURE = "picture"
    JSON = "json"


@anywhere
def flows(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only this flow: all its versions.", autocompletion=complete_flow),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, max=2**31 - 1, help="This version; else the newest.")
    ] = None,
    form: Annotated[Form, typer.Option("--as", help="How to print it.")] = Form.TABLE,
    json: Annotated[bool, typer.Option("--json", help="The same as --as json.")] = False,
) -> None:
    """The flows that can be started; of one flow its versions, its code, a drawing or everything as JSON."""
    form = Form.JSON if json else form
    with place() as engine:
        if name is None and (version is not None or form not in (Form.TABLE, Form.JSON)):
            raise Refused(
                "Which flow is meant?", code="FLOW_NOT_NAMED", hint="Write its name: `holdfast flows NAME --as code`."
            )
        if name is None or (form is Form.TABLE and version is None):
            _list(engine.flows(name) if name is None else _versions(engine, name), form)
            return
        flow = engine.flow(name, version)
    if form is Form.JSON:
        show_facts(msgspec.to_builtins(flow), json=True)
    elif form is Form.TABLE:
        _list([flow], form)
    else:
        show_text(PRINTERS[form](flow).rstrip("\n"))


def _versions(engine: Place, name: str) -> Sequence[FlowVersion]:
    return engine.flows(name) or [engine.flow(name)]  # the second to say what is wrong with the name


def _list(found: Sequence[FlowVersion], form: Form) -> None:
    if form is Form.JSON:
        show_all([msgspec.to_builtins(flow) for flow in found])
    elif not found:
        say("There are no flows.")
    else:
        table(
            ("flow", "version", "kind", "status", "published", "by"),
            [(f.name, str(f.version), f.kind, _status(f), shown(f.published_at), f.created_by or "") for f in found],
        )


def _status(flow: FlowVersion) -> str:
    return f"{flow.status}, for all" if flow.org == "_system" else flow.status


def _code(flow: FlowDocument) -> str:
    code = open_source(flow.source).code()
    if code is None:
        raise Refused(
            f"{flow.name!r} version {flow.version} was published as a graph, so there is no code to print.",
            code="FLOW_WITHOUT_CODE",
            hint="--as picture draws it, --as json prints the graph.",
        )
    return code


def _picture(flow: FlowDocument) -> str:
    return picture_of(flow, ascii=not console().encoding.lower().startswith("utf"))


PRINTERS: Final[dict[Form, Callable[[FlowDocument], str]]] = {
    Form.CODE: _code,
    Form.MERMAID: mermaid_of,
    Form.PICTURE: _picture,
}
