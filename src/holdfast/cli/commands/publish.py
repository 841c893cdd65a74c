"""`holdfast publish`: workflows in YAML and flows in Python, made startable; all of them, or none."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import complain, say, show_all, table, tracked, warn
from holdfast.cli.sources import read_sources
from holdfast.cli.target import Place, anywhere, place
from holdfast.doors.source import Source
from holdfast.errors import Conflict, NotFound
from holdfast.graph.compile import compile_graph
from holdfast.logs import logger
from holdfast.runtime.publishing import Published, version_taken
from holdfast.store.reads.flows import FlowVersion


@anywhere
def publish(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files of steps, directories of them, or module:flow.")
    ],
    by: Annotated[str | None, typer.Option("--by", help="Who publishes, for the record.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check what would be published.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish workflows and flows. All of them are checked before the first is stored."""
    written = read_sources(sources)
    with place() as engine:
        planned = _plan(engine, written, json=json)
        if dry_run:
            _answer(planned, json=json)
            return
        with _told_later():
            done = engine.publish_many(tracked(written, len(written), "publish"), by=by)
    _answer(done, json=json)


@contextmanager
def _told_later() -> Generator[None]:
    """Hold back the engine's warnings until all are published: a missing flow may be the next one."""
    publishing = logger("holdfast.publish")
    before = publishing.level
    publishing.setLevel(logging.ERROR)
    try:
        yield
    finally:
        publishing.setLevel(before)


def _plan(engine: Place, written: Sequence[Source], *, json: bool) -> list[Published]:
    """List the new versions. Print an error for every version already published with other content; raise the last."""
    planned: list[Published] = []
    refusals: list[Conflict] = []
    for graph in (source.lower() for source in written):
        hash = compile_graph(graph).hash
        known = next((taken.hash for taken in _versions(engine, graph.name) if taken.version == graph.version), None)
        planned.append(Published(graph.name, graph.version, hash, known is None))
        if known not in (None, hash):
            refusals.append(version_taken(graph.name, graph.version))
    for refusal in refusals[:-1]:
        complain(refusal, json=json)
    if refusals:
        raise refusals[-1]
    return planned


def _versions(engine: Place, name: str) -> Iterator[FlowVersion]:
    try:
        yield from (flow for flow in engine.flows(name) if flow.org != "_system")
    except NotFound:
        return


def _answer(done: Sequence[Published], *, json: bool) -> None:
    if json:
        show_all([msgspec.to_builtins(one) for one in done])
        return
    table(("flow", "version", ""), [(one.name, str(one.version), "new" if one.new else "unchanged") for one in done])
    known = {one.name for one in done}
    for one in done:
        for flow in one.unknown_flows:
            if flow not in known:  # those may have been published a moment later
                warn(f"{one.name!r} starts the flow {flow!r}, which is not published.")
    new = sum(one.new for one in done)
    say(f"{new} new, {len(done) - new} unchanged.")
