"""What the package promises to whoever installs it."""

from __future__ import annotations

from importlib.metadata import requires


def test_the_extra_for_sqlalchemy_brings_what_its_asyncio_side_needs() -> None:
    """Without `[asyncio]` the package greenlet is missing wherever no wheel of SQLAlchemy brings it along."""
    assert [name for name in requires("holdfast") or () if 'extra == "sqlalchemy"' in name.replace("'", '"')] == [
        "sqlalchemy[asyncio]>=2.0; extra == 'sqlalchemy'"
    ]
