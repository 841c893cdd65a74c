"""Get PgBouncer without being root: Debian's package and the two libraries it needs, unpacked below build/.

python tests/poolers/fetch.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from bouncer import FETCHED, find

_LIBRARIES: Final = re.compile(r"Depends: (libevent-\S+|libc-?ares\S+)")


def fetch(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    needs = subprocess.run(["apt-cache", "depends", "pgbouncer"], capture_output=True, text=True, check=True).stdout
    subprocess.run(["apt-get", "download", "pgbouncer", *_LIBRARIES.findall(needs)], cwd=place, check=True)
    for package in place.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, place], check=True)


if __name__ == "__main__":
    if find() is None:
        try:
            fetch(FETCHED)
        except (OSError, subprocess.CalledProcessError) as failure:
            sys.exit(f"PgBouncer is not installed and could not be fetched ({failure}); install the package pgbouncer.")
    print(f"PgBouncer: {find()}")
