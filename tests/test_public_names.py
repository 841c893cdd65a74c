"""The public names: the documentation imports them only, and everything a verb returns is one of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import Engine

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCKS = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PUBLIC = (
    "holdfast",
    "holdfast.consumer",
    "holdfast.errors",
    "holdfast.graph",
    "holdfast.server",
    "holdfast.testing",
    "holdfast.webhooks",
)


def exported(module: ModuleType) -> set[str]:
    """The names of `__all__`; without one, those that the module defines itself."""
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return set(getattr(module, "__all__", own))


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from Holdfast; a plain `import` has the name ""."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "holdfast":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "holdfast")


def hidden(code: str) -> list[str]:
    """The imports that reach behind the public names."""
    return [
        f"{module}.{name}".rstrip(".")
        for module, name in imported(code)
        if f"{module}.{name}" not in PUBLIC
        and (module not in PUBLIC or (name and name not in exported(importlib.import_module(module))))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_names_only(page: Path) -> None:
    blocks = [block.replace("\n" + indent, "\n")[len(indent) :] for indent, block in BLOCKS.findall(page.read_text())]
    assert [name for block in blocks for name in hidden(block)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from holdfast import Engine, Flow", []),
        ("from holdfast import webhooks\nimport holdfast", []),
        ("from holdfast.errors import Refused", []),
        ("from holdfast import Motor", ["holdfast.Motor"]),
        ("from holdfast.errors import Any", ["holdfast.errors.Any"]),
        ("async def f():\n    from holdfast.runtime.engine import Engine", ["holdfast.runtime.engine.Engine"]),
        ("import holdfast.store.embedded", ["holdfast.store.embedded"]),
    ],
)
def test_a_hidden_name_is_found(code: str, found: list[str]) -> None:
    assert hidden(code) == found


@pytest.mark.parametrize("module", PUBLIC)
def test_every_exported_name_exists(module: str) -> None:
    home = importlib.import_module(module)
    assert exported(home)
    assert [name for name in exported(home) if not hasattr(home, name)] == []


def test_every_type_that_a_verb_returns_is_exported() -> None:
    verbs = [name for name in dir(Engine) if not name.startswith("_")]
    found = {type for verb in verbs for type in own_types(returned(verb))}
    assert len(found) > 20
    assert [type.__name__ for type in found if getattr(holdfast, type.__name__, None) is not type] == []


def returned(verb: str) -> Any:
    member = inspect.getattr_static(Engine, verb)
    function = inspect.unwrap(member.fget if isinstance(member, property) else member)  # pyright: ignore
    return typing.get_type_hints(function).get("return") if inspect.isfunction(function) else None


def own_types(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("holdfast."):
        yield hint
    for part in typing.get_args(hint):
        yield from own_types(part)
