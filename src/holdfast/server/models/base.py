"""Base of all models: strict where JSON Schema is strict, so that the published schema matches the accepted input."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
MOST_VERSION: Final = 2**31 - 1


def take_moment(value: Any) -> Any:
    """RFC 3339 and nothing else: numbers, bare dates and moments without a zone mean different things to people."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not MOMENT.fullmatch(value):
        raise ValueError("write it as in RFC 3339, such as 2026-05-01T09:30:00Z")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment is out of range") from None


def take_flag(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def take_whole(value: Any) -> Any:
    """Read 7.0 as 7: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Moment = Annotated[datetime, BeforeValidator(take_moment, json_schema_input_type=datetime)]
Flag = Annotated[bool, BeforeValidator(take_flag, json_schema_input_type=bool)]  # in a query, where all is text
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
Words = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
Whole = Annotated[int, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=int)]
Version = Annotated[int, Field(ge=1, le=MOST_VERSION)]
WholeVersion = Annotated[Version, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=Version)]
Count = Annotated[int, Field(ge=0, le=MOST_VERSION)]
WholeCount = Annotated[Count, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=Count)]
LetterInputs = Annotated[
    dict[UUID, Any], Field(max_length=1000, description="New inputs for steps, by the id of their dead letter.")
]


class Model(BaseModel):
    """An answer. It is made from what the engine answers, field by field."""

    model_config = ConfigDict(from_attributes=True, frozen=True, extra="forbid")

    @classmethod
    def of(cls, value: object) -> Self:
        return cls.model_validate(value, from_attributes=True)


class Wish(BaseModel):
    """The body of a request; a name that is not known is refused instead of ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Item = TypeVar("Item")


class Listed(Model, Generic[Item]):
    """One page. `next` is the cursor of the page behind it; null when this is the last one."""

    items: list[Item]
    next: str | None = Field(default=None, examples=["q0yKQ3mD3Q5PlmAB"])
