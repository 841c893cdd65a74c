"""Pages of HTML, written to files."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import HoldfastError


def write_page(file: Path, page: str) -> None:
    """Write a page to the file that `--html` names."""
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as failure:
        raise HoldfastError(
            f"The page cannot be written to {file}: {failure.strerror}.",
            code="FILE_UNWRITABLE",
            hint="Name a file in a directory that exists and that you may write to.",
        ) from None
