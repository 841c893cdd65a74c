"""The saga builder: a flow written as one expression, each call answering a new, longer flow."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.definitions.model import Definition, Function, is_same_function
from holdfast.definitions.path import Path
from holdfast.definitions.problems import Problem, problem, require_none
from holdfast.definitions.rules import check_flow, check_steps
from holdfast.definitions.settling import settled_path
from holdfast.definitions.shape import check_depth, check_shape


class Flow(Path):
    """`Flow("order").step("reserve", reserve).build()`. Mistakes are gathered and raised together by `build`."""

    __slots__ = ("_dlq", "_name", "_retries", "_timeout", "_version")

    def __init__(
        self, name: str, version: int = 1, *, dlq: bool = False, retries: int = 1, timeout: float | None = None
    ) -> None:
        """`retries` holds for steps and compensations that say nothing; `timeout` is for the whole instance."""
        super().__init__()
        self._name = name
        self._version = version
        self._dlq = dlq
        self._retries = retries
        self._timeout = timeout

    def build(self) -> Definition:
        """The finished definition; a DefinitionError lists everything that is wrong in its `diagnostics`."""
        # What is nested too deep is not looked into: the walk itself would fail.
        require_none(self._name, tuple(check_depth(self._depth)))
        require_none(self._name, tuple(self._check()))
        return Definition(
            name=self._name,
            version=self._version,
            items=settled_path(self._items),
            handlers=dict(self._functions),
            dlq=self._dlq,
            retries=max(1, self._retries),
            timeout=None if self._timeout is None else float(self._timeout),
        )

    def _check(self) -> Iterator[Problem]:
        yield from check_flow(self._name, self._version, dlq=self._dlq, retries=self._retries, timeout=self._timeout)
        yield from self._problems
        yield from check_shape(self._name, self._version, self._items)
        yield from check_steps(self._items)
        yield from self._ambiguous_handlers()

    def _ambiguous_handlers(self) -> Iterator[Problem]:
        known: dict[str, Function] = {}
        for name, function in self._functions:
            if not is_same_function(known.setdefault(name, function), function):
                message = f"Two different functions are called {name!r}; a handler's name must mean one of them."
                yield problem("HANDLER_AMBIGUOUS", message, f"handlers.{name}")
