"""Models of published flows, and of the findings about one that cannot be published."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from holdfast.server.models.base import Model, Moment


class PublishedView(Model):
    """A version as it was published. `new` is false when the very same one was there already; `unknown_flows` are
    sub-flows it starts that are not published, at least not yet."""

    name: str
    version: int
    hash: str
    new: bool
    unknown_flows: list[str] = Field(default_factory=list)


class Publication(Model):
    """The published definition; after a dry run, the one that would be, with warnings."""

    dry_run: bool
    published: list[PublishedView]
    warnings: list[Finding]


class Finding(Model):
    """One error or warning, and its place. A definition in JSON has a `place`, one in YAML also a line."""

    severity: Literal["error", "warning"]
    code: str
    message: str
    hint: str
    file: str | None = None
    line: int | None = Field(default=None, ge=1)
    column: int | None = Field(default=None, ge=1)
    place: str | None = None


class DefinitionVersion(Model):
    """One published version of a flow. `shared`: it belongs to the installation, every tenant may start it."""

    org: str = Field(description="The tenant it belongs to, `_system` if it is shared.")
    name: str
    version: int
    kind: str
    status: Literal["draft", "published", "archived"]
    hash: str
    compiler_version: str
    created_by: str | None
    published_at: Moment
    shared: bool


class DefinitionDocument(DefinitionVersion):
    """A version with what it was published from."""

    source: Any


class DefinitionGraph(Model):
    """The graph that runs: nodes and edges as plain data, in the format that `holdfast docs graph` describes."""

    name: str
    version: int
    hash: str
    graph: dict[str, Any]


Publication.model_rebuild()
