"""Files of machines: blueprints and policies, each policy checked beside the blueprint it is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from holdfast.doors.machine.definition import Found, is_combined, read_machine, read_policy
from holdfast.doors.machine.problems import Findings, Problem
from holdfast.doors.machine.reading import LARGEST, read_document

SUFFIX: Final = ".json"
SUFFIXES: Final = (".blueprint.json", ".policy.json")  # in a directory other JSON belongs to others
_OF_POLICIES: Final = frozenset({"for", "policy_name", "rules", "timeouts"})


class Read(msgspec.Struct, frozen=True):
    """A sound file, in one line."""

    file: str
    summary: str


class _File(msgspec.Struct, frozen=True):
    path: Path
    data: bytes
    content: dict[str, Any]  # empty: unreadable, or no object

    @property
    def is_policy(self) -> bool:
        keys = self.content.keys()
        return "states" not in keys and not is_combined(self.content) and not _OF_POLICIES.isdisjoint(keys)

    @property
    def machine(self) -> Any:
        """The name of the machine it is about; None if there is none to read."""
        if not self.is_policy:
            return self.content.get("name")
        target = self.content.get("for")
        return cast(dict[str, Any], target).get("definition") if isinstance(target, dict) else None


def read_machines(paths: Sequence[Path], policy: Path | None) -> tuple[tuple[Read, ...], tuple[Problem, ...]]:
    """The sound machines and policies of these files, and every problem of all of them."""
    problems: list[Problem] = []
    files = [file for path in paths if (file := _read(path, problems)) is not None]
    given = None if policy is None else _read(policy, problems)
    blueprints = [file for file in files if not file.is_policy]
    policies = [file for file in files if file.is_policy]
    sound: list[Read] = []
    paired: set[Path] = set()
    for blueprint in blueprints:
        own = [given] if given is not None else [each for each in policies if each.machine == blueprint.machine]
        paired |= {each.path for each in own}
        for found in [_pair(blueprint, each) for each in own or (None,)]:
            _take(found, blueprint.path, sound, problems)
    for each in [*policies, *([given] if given is not None and not blueprints else [])]:
        if each.path not in paired:
            _take(read_policy(each.data, str(each.path)), each.path, sound, problems)
    return tuple(dict.fromkeys(sound)), tuple(dict.fromkeys(problems))


def _pair(blueprint: _File, policy: _File | None) -> Found:
    rules, file = (None, "") if policy is None else (policy.data, str(policy.path))
    return read_machine(blueprint.data, rules, (str(blueprint.path), file))


def _take(found: Found, path: Path, sound: list[Read], problems: list[Problem]) -> None:
    problems += found.problems
    if any(problem.severity == "error" for problem in found.problems):
        return
    if found.blueprint is not None:
        plan = found.blueprint
        name = f"{plan.environment}.{plan.name}"
        policies = "" if found.policy is None else " with a policy"
        sound.append(Read(str(path), f"{name} version {plan.version}, {len(plan.states)} states{policies}"))
    elif found.policy is not None:
        sound.append(Read(str(path), f"policy of {found.policy.definition}, {len(found.policy.rules)} rules"))


def _read(path: Path, problems: list[Problem]) -> _File | None:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        message = f"The file cannot be read: {error.strerror}."
        problems.append(Problem(file=str(path), place="$", code="FILE_NOT_FOUND", message=message, hint="Check it."))
        return None
    document = read_document(data, Findings(str(path)))
    content = None if document is None else document.content
    return _File(path, data, cast(dict[str, Any], content) if isinstance(content, dict) else {})


def is_machine_file(path: Path) -> bool:
    """Check if a named file is one of machines."""
    return path.suffix == SUFFIX


def in_directory(path: Path) -> Iterable[Path]:
    """The blueprints and policies in a directory and in those inside it."""
    return (each for each in path.rglob(f"*{SUFFIX}") if each.name.endswith(SUFFIXES) and each.is_file())
