"""Published flows of a server."""

from __future__ import annotations

from holdfast.client.connection import EVERYTHING, Connection, part, taken
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import dump_compiled
from holdfast.graph.model import load_graph
from holdfast.store.reads.flows import FlowDocument, FlowVersion

FlowVersions = list[FlowVersion]


class ClientFlows:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def list(self, name: str | None = None) -> FlowVersions:
        path = "/definitions" if name is None else f"/definitions/{part(name)}/versions"
        return [taken(FlowVersion, item) for item in self._server.pages(path, EVERYTHING)]

    def get(self, name: str, version: int | None = None) -> FlowDocument:
        path = f"/definitions/{part(name)}"
        found = self._server.get(path if version is None else f"{path}/versions/{version}")
        told = self._server.get(f"{path}/versions/{found['version']}/graph")
        compiled = compile_graph(load_graph(told["graph"]))
        return taken(FlowDocument, {**found, "compiled": dump_compiled(compiled), "hash": compiled.hash})
