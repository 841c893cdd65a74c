"""Helper process: it checks values against JSON Schemas, and ends when a check takes too long.

It runs as a file and imports nothing of Holdfast, so that it starts quickly and has nothing to lose. The kernel ends
it by a timer, whatever the state of the check; the caller reads the end of the pipe.
"""

from __future__ import annotations

import resource
import signal
import struct
import sys
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
import msgspec

MOST_MISFITS: Final = 20
MOST_MEMORY: Final = 1 << 30
BACKTRACKS: Final = 100_000  # a pattern must not take for ever
PATIENCE: Final = 10.0  # of the clock on the wall for each second of the processor's
LENGTH: Final = struct.Struct("!I")


def validator_of(schema: Any) -> Any:
    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)
    return jsonschema_rs.validator_for(schema, validate_formats=True, pattern_options=patterns, offline=True)


def misfits(validator: Any, value: Any) -> list[tuple[list[Any], str]]:
    if validator.is_valid(value):
        return []
    found: list[tuple[list[Any], str]] = []
    for error in validator.iter_errors(value):
        found.append((list(error.instance_path), error.message))
        if len(found) == MOST_MISFITS:
            break
    return found


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> Any:
    return validator_of(msgspec.json.decode(schema))


def main(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    take, give = sys.stdin.buffer, sys.stdout.buffer
    while head := take.read(LENGTH.size):
        schema = take.read(LENGTH.unpack(head)[0])
        value = take.read(LENGTH.unpack(take.read(LENGTH.size))[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE)
        answer = msgspec.json.encode(misfits(_compiled(schema), msgspec.json.decode(value)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        give.write(LENGTH.pack(len(answer)) + answer)
        give.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
