"""The format of decision tables in files: every key with the shape of its value and its meaning."""

from __future__ import annotations

from typing import Final

from holdfast.doors.envelope.reading.format import ABOUT, FIELD_NAME, NAME, VERSION
from holdfast.doors.shapes import Anything, Choice, Either, Field, Fields, Flag, Items, Named, Number, Text

COLUMN_TYPES: Final = ("number", "money", "string", "boolean")
MOST_ROWS: Final = 500
MOST_COLUMNS: Final = 20

_AMOUNT: Final = Number(-1e15, 1e15)
_TEXT: Final = Text("text", longest=500)
_BOUNDS: Final = Fields(
    "condition",
    {
        "at_least": Field(_AMOUNT, "It is this number or more."),
        "above": Field(_AMOUNT, "It is more than this number."),
        "at_most": Field(_AMOUNT, "It is this number or less."),
        "below": Field(_AMOUNT, "It is less than this number."),
    },
)
_CONDITION: Final = Either(
    "a value, a list of values, or bounds such as {at_least: 0, below: 100}",
    (
        Items(Either("a value", (Flag(), _TEXT, _AMOUNT)), least=1, most=500, distinct=True),
        _BOUNDS,
        Flag(),
        _TEXT,
        _AMOUNT,
    ),
)
_COLUMN: Final = Fields(
    "column",
    {
        "field": Field(FIELD_NAME, "The field of the document.", required=True),
        "type": Field(Choice(COLUMN_TYPES), "Its type in the contract.", required=True),
        "least": Field(_AMOUNT, "The least number it can be."),
        "most": Field(_AMOUNT, "The greatest number it can be."),
        "values": Field(Items(_TEXT, least=1, most=500, distinct=True), "All texts it can be; any text if left out."),
    },
)
_ROW: Final = Fields(
    "row",
    {
        "when": Field(Named(_CONDITION, FIELD_NAME, MOST_COLUMNS), "The conditions, per field; without any it holds."),
        "then": Field(Named(Anything(), FIELD_NAME, 50), "The outcome: name → value.", required=True),
        "about": ABOUT,
    },
)
TABLE: Final = Fields(
    "table",
    {
        "name": Field(NAME, "What `rule` nodes call it.", required=True),
        "version": Field(VERSION, "A published version never changes; 1 if left out."),
        "about": ABOUT,
        "hit": Field(Choice(("first", "all")), "Does the first row that holds decide, or do all? first if left out."),
        "columns": Field(Items(_COLUMN, least=1, most=MOST_COLUMNS), "The fields that rows read.", required=True),
        "rows": Field(Items(_ROW, least=1, most=MOST_ROWS), "The rows.", required=True),
    },
)
