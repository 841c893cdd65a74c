"""Problems of decision tables: the remedy of each code."""

from __future__ import annotations

from typing import Final

from holdfast.doors.yaml import problems as yaml

_TABLE_KEYS: Final = "`holdfast docs rules` lists the keys with what each takes."

TABLE_REMEDIES: Final[dict[str, str]] = {
    **yaml.REMEDIES,
    "TABLE_BOUNDS_WRONG": "Numbers and money take least and most, texts take values.",
    "TABLE_COLUMN_UNKNOWN": "Add a column for the field, or correct its name.",
    "TABLE_CONDITION_WRONG": "Write a value of the column's type, a list of such, or bounds of a number.",
    "TABLE_DUPLICATE": "Keep one of the two.",
    "TABLE_GAP": "Add a row for it, a last row without conditions, or the bounds of the column.",
    "TABLE_KEY_MISSING": _TABLE_KEYS,
    "TABLE_KEY_UNKNOWN": _TABLE_KEYS,
    "TABLE_OPTION_UNKNOWN": _TABLE_KEYS,
    "TABLE_OUTCOME_MISSING": "Give each row the same names in `then`.",
    "TABLE_OVERLAP": "Narrow one of the two, if the order of the rows is not what you mean.",
    "TABLE_ROW_EMPTY": "Correct its conditions, or remove it.",
    "TABLE_ROW_UNREACHED": "Move it up, narrow the rows before it, or remove it.",
    "TABLE_TOO_INTRICATE": "Make two tables of it, or use fewer bounds.",
    "TABLE_TYPE_WRONG": _TABLE_KEYS,
    "TABLE_VALUE_INVALID": _TABLE_KEYS,
}
