"""`python -m faults.defects <defect or -> <of which defect the probe> <seed> <cluster's directory> <its templates>`.

Prints the figures as JSON. With `-` the engine is as it is, and the probe has to be green.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from faults import cluster
from faults.defects import named
from faults.fleet import Silent
from faults.report import NONE, Figure
from faults.scene import TooLate


def main(defect: str, probe: str, seed: int, place: str, templates: dict[str, str]) -> None:
    cluster._shared = cluster.Cluster(place=Path(place))  # the run's own, which is running
    cluster._shared._templates = {kind == "movable": name for kind, name in templates.items()}
    if defect != "-":
        os.environ["FAULTS_PATCHES"] = named(defect).module
        named(defect).apply()
    try:
        figures = named(probe).probe(seed)
    except (TooLate, Silent, TimeoutError) as failure:
        figures = [Figure(f"{probe}: did not finish", None, NONE, seed, repr(failure))]
    print(json.dumps([figure.as_json() for figure in figures]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
