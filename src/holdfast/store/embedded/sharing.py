"""Projects that share the default embedded server, listed in a file beside its data.

A second project gets the same server without asking; flows, work and instances of both lie in one database then. So
each project is warned of the others when it starts the server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

USERS: Final = "used-by"  # a project per line, the last to come at the end
MOST: Final = 50
_MARKS: Final = ("pyproject.toml", ".git")


def project_of(place: Path) -> Path:
    """The nearest directory above that looks like the root of a project, or the place itself."""
    return next((one for one in (place, *place.parents) if any((one / mark).exists() for mark in _MARKS)), place)


def note_user(directory: Path, project: Path) -> list[Path]:
    """Remember that the project uses the server of this directory; return the other projects that do and still exist.

    The caller holds the lock of the directory. A directory that is not writable remembers no new project.
    """
    file = directory / USERS
    known = _read(file)
    others = [one for one in known if one != project and one.is_dir()]
    if known[-1:] != [project]:
        with suppress(OSError):
            _write(file, [*others, project][-MOST:])
    return others


def _read(file: Path) -> list[Path]:
    try:
        return [Path(line) for line in file.read_text(errors="surrogateescape").splitlines() if line.startswith("/")]
    except OSError:
        return []


def _write(file: Path, projects: Sequence[Path]) -> None:
    lines = [str(one) for one in projects if "\n" not in str(one)]
    draft = file.with_name(f"{USERS}.{os.getpid()}")
    draft.write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")
    draft.replace(file)
