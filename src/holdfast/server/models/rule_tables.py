"""Models of decision tables."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, StringConstraints

from holdfast.server.models.base import Model, Moment, Wish
from holdfast.server.models.contracts import Why

TableName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00/]+$")]


class PublishTable(Wish):
    """A decision table, in the form that `holdfast docs rules` describes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "table": {
                        "name": "limits",
                        "columns": [{"field": "total", "type": "money", "least": 0}],
                        "rows": [{"when": {"total": {"below": 50000}}, "then": {"signatures": 0}}],
                    },
                    "reason": "first",
                }
            ]
        }
    )
    table: dict[str, Any]
    reason: Why | None = None


class PublishedTableView(Model):
    """A decision table as it was published."""

    name: str
    version: int
    hash: str
    new: bool = Field(description="False: the very same table was there already.")


class TableVersionView(Model):
    """One version of a decision table."""

    org: str = Field(description="The tenant it belongs to, `_system` if it is shared.")
    name: str
    version: int
    hash: str
    created_by: str
    reason: str | None
    published_at: Moment


class TableView(TableVersionView):
    """A decision table as it was written."""

    table: dict[str, Any]
