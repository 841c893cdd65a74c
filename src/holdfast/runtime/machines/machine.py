"""Machine: a blueprint and its policy, as users load, look at and try them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from holdfast.doors.machine.definition import FILES, MachineDefinition, require_policy_target
from holdfast.doors.machine.reading import LARGEST
from holdfast.errors import NotFound
from holdfast.payloads.encoding import decode
from holdfast.runtime.machines.simulation import Simulation, Tried, simulate

Loadable = str | bytes | Path | dict[str, Any]

_OBJECT: Final = ("{", "\ufeff{")


class Machine(MachineDefinition):
    """A machine: its blueprint, and the policy that says what each state emits, waits for and times out."""

    @classmethod
    def load(cls, blueprint: Loadable, policy: Loadable | None = None) -> Self:
        """Read a machine from files, JSON text or data; a DefinitionError lists every problem of both."""
        plan, plan_file = _read(blueprint, FILES[0])
        rules, rules_file = (None, FILES[1]) if policy is None else _read(policy, FILES[1])
        return cls.parse(plan, rules, files=(plan_file, rules_file))

    @staticmethod
    def target_of(policy: Loadable) -> str:
        """Read the name of the definition that a policy is for."""
        return require_policy_target(_read(policy, FILES[1])[0])

    def simulate(
        self,
        events: Iterable[Tried],
        *,
        actor: str = "simulation",
        capabilities: Iterable[str] = (),
        now: datetime | None = None,
        data: dict[str, Any] | None = None,
    ) -> Simulation:
        """Send events to an instance that exists only in memory, each as its code, its name or with a payload."""
        return simulate(self, events, actor=actor, capabilities=capabilities, now=now, data=data)


def read_policy(policy: Loadable) -> Any:
    """Read a policy as data; nothing of it is checked but that it is JSON."""
    written, name = _read(policy, FILES[1])
    return written if isinstance(written, dict) else decode(written, f"The policy {name!r}")


def _read(written: Loadable, name: str) -> tuple[str | bytes | dict[str, Any], str]:
    """Read a file. Text that begins like an object is JSON already; any other text is a path."""
    if isinstance(written, Path):
        return _content(written), str(written)
    if isinstance(written, str) and not written.lstrip().startswith(_OBJECT):
        return _content(Path(written)), written
    return written, name


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise NotFound(
            f"The file {str(path)[:200]!r} cannot be read: {getattr(error, 'strerror', None) or error}.",
            code="FILE_NOT_FOUND",
            hint="Check the name.",
        ) from None
