"""`holdfast docs`: the pages of this release, wherever it is installed. Hints of errors name them."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast.cli.render.output import show_text
from holdfast.errors import NotFound

PACKAGE = Path(holdfast.__file__).parent
PLACES = PACKAGE / "docs", PACKAGE.parents[1] / "docs"  # of a wheel; of a checkout


def docs(
    page: Annotated[str | None, typer.Argument(metavar="PAGE", help="For example steps or howto/dlq.")] = None,
) -> None:
    """Show a page of the documentation, or without a name which there are."""
    pages = find_pages()
    if page is None:
        show_text("\n".join(sorted(pages)))
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        similar = difflib.get_close_matches(name[:80], pages, n=1)
        raise NotFound(
            f"There is no page {page!r}.",
            code="PAGE_UNKNOWN",
            hint=f"Did you mean {similar[0]}?" if similar else "`holdfast docs` lists the pages.",
        )
    show_text(pages[name].read_text(encoding="utf-8").rstrip("\n"))


def find_pages() -> dict[str, Path]:
    """Map names to pages. A name is the path below `docs`, without its ending."""
    home = next((place for place in PLACES if place.is_dir()), PLACES[0])
    return {path.relative_to(home).with_suffix("").as_posix(): path for path in sorted(home.rglob("*.md"))}
