"""All static checks of a graph at once: `check` never stops at the first problem."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import DefinitionError, ExpressionError
from holdfast.graph.checks.branches import check_branches
from holdfast.graph.checks.compensations import check_compensations
from holdfast.graph.checks.fields import VARIABLE_TYPES, check_fields
from holdfast.graph.checks.regions import check_regions
from holdfast.graph.checks.schemas import schema_problem
from holdfast.graph.checks.sites import compile_site, find_sites
from holdfast.graph.checks.structure import check_structure
from holdfast.graph.diagnostics import Diagnostic, in_order, problem
from holdfast.graph.model import Graph, dump_graph, load_graph
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology


def check(graph: Graph) -> tuple[Diagnostic, ...]:
    """Every problem of the graph, sorted by place; empty if there is none."""
    try:
        graph = normalised(graph)
    except DefinitionError as error:
        place = error.detail.get("place") or "graph"
        return in_order(list(error.diagnostics) or [problem(error.code, error.message, place)])
    return check_normalised(graph)


def normalised(graph: Graph) -> Graph:
    """The graph as it would come back from storage; a graph built in Python has not had its types checked before."""
    return load_graph(dump_graph(graph))


def check_normalised(graph: Graph) -> tuple[Diagnostic, ...]:
    found = [*check_fields(graph), *_check_expressions(graph), *_check_forms(graph)]
    topology = read_topology(graph)
    found.extend(check_structure(graph, topology))
    found.extend(check_regions(graph, topology))
    scopes = find_scopes(topology)
    found.extend(check_branches(graph, topology, scopes))
    found.extend(check_compensations(topology, scopes))
    return in_order(found)


def _check_expressions(graph: Graph) -> Iterator[Diagnostic]:
    # A variable whose type is unknown has a diagnostic of its own; here it must not hide other mistakes.
    variables = {path: kind if kind in VARIABLE_TYPES else "any" for path, kind in graph.variables.items()}
    for site in find_sites(graph):
        try:
            compile_site(site, variables, graph.policy)
        except ExpressionError as error:
            message = f"[{error.code}] {error.message}"
            yield problem("BAD_EXPRESSION", message, f"{site.place}@{error.position}")


def _check_forms(graph: Graph) -> Iterator[Diagnostic]:
    for node in graph.nodes:
        found = None if node.form is None else schema_problem(node.form)
        if found is not None:
            yield problem("BAD_FORM", found.message, ".".join(("nodes", node.id, "form", *map(str, found.path))))
