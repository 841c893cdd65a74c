"""Models of contracts: contracts and patches as data, drafts, findings, rebases."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from holdfast.server.models.base import Model, Moment, WholeVersion, Wish

Type = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00/]+$")]
Why = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
_PATCH: dict[str, Any] = {"contract": "invoice", "envelope": 1}


class PublishContract(Wish):
    """A contract, in the form that `holdfast docs contracts` describes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"examples": [{"contract": {"type": "invoice", "version": 1}, "reason": "first"}]}
    )
    contract: dict[str, Any]
    reason: Why | None = None


class SaveDraft(Wish):
    """A patch, in the form that `holdfast docs patches` describes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"examples": [{"patch": _PATCH}]})
    patch: dict[str, Any]
    reason: Why | None = None


class CheckPatch(Wish):
    """A patch to check; without one it is the draft."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"examples": [{}, {"patch": _PATCH}]})
    patch: dict[str, Any] | None = None


class Because(Wish):
    """The reason of a change."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"examples": [{"reason": "agreed"}, {}]})
    reason: Why | None = None


class Rebase(Wish):
    """A version of the contract, by default its newest. A dry run only tells what fits."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"examples": [{"to_version": 2, "dry_run": True}]}
    )
    to_version: WholeVersion | None = None
    dry_run: StrictBool = False
    reason: Why | None = None


class PublishedContractView(Model):
    """A contract as it was published. `default` is the graph of documents without a patch, `note` why there is none."""

    type: str
    version: int
    hash: str
    new: bool
    default: int | None
    note: str | None


class ContractVersionView(Model):
    """One version of a contract."""

    org: str = Field(description="The tenant it belongs to, `_system` if it is shared.")
    type: str
    version: int
    hash: str
    compiler_version: str
    created_by: str | None
    published_at: Moment


class ContractView(ContractVersionView):
    """A contract as it was written."""

    contract: dict[str, Any]


class GraphView(Model):
    """A graph as plain data, in the format that `holdfast docs graph` describes."""

    type: str
    version: int
    hash: str
    graph: dict[str, Any]


class EffectiveView(GraphView):
    """The graph that documents run by. `is_default`: of the contract alone, without a patch."""

    org: str
    status: Literal["published", "archived"]
    is_default: bool
    envelope: int


class PatchFinding(Model):
    """One error or warning of a patch, and its place there."""

    severity: Literal["error", "warning"]
    code: str
    message: str
    place: str
    path: list[str | int]
    column: int | None
    hint: str


class PatchCheck(Model):
    """The findings of a patch, all of them."""

    findings: list[PatchFinding]


class DraftView(Model):
    """The draft of a patch. Its `etag` is that of the answer as well."""

    type: str
    etag: str
    patch: dict[str, Any]
    by: str
    at: Moment
    reason: str | None


class PublishedPatchView(Model):
    """A patch as it was published, with the hash of the graph compiled of it."""

    type: str
    version: int
    envelope: int
    hash: str
    graph_hash: str
    warnings: list[PatchFinding]


class PatchVersionView(Model):
    """One version of the tenant's patch. The newest that is not archived is in force."""

    type: str
    version: int
    status: Literal["published", "archived"]
    envelope: int
    hash: str
    created_by: str | None
    published_at: Moment


class PatchView(PatchVersionView):
    """A patch as it was written."""

    patch: dict[str, Any]


class RebaseView(Model):
    """The outcome of a rebase for the patch of the tenant."""

    org: str
    type: str
    version: int
    envelope: int
    status: Literal["fits", "misfit", "current", "published", "failed"]
    published: int | None
    findings: list[PatchFinding]
    error: str | None


class RebaseAnswer(Model):
    """Empty where no patch is in force."""

    patches: list[RebaseView]


class ContractEventView(Model):
    """A change of a contract or a patch: its actor and the reason."""

    id: int
    type: str
    action: str
    version: int | None
    origin: int | None
    by: str
    reason: str | None
    at: Moment
