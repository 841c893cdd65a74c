"""The saga builder: a flow written as one expression, each call answering a new, longer flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.definitions.model import Definition, Function, Human, Item, Step
from holdfast.definitions.problems import Problem, problem, require_none
from holdfast.definitions.rules import check_flow
from holdfast.payloads import canonical

_NAMELESS: Final = "<lambda>"


class Flow:
    """`Flow("order").step("reserve", reserve).build()`. Mistakes are gathered and raised together by `build`."""

    __slots__ = ("_functions", "_items", "_name", "_version")

    def __init__(self, name: str, version: int = 1) -> None:
        self._name = name
        self._version = version
        self._items: tuple[Item, ...] = ()
        self._functions: tuple[tuple[str, Function], ...] = ()

    def step(
        self,
        name: str,
        handler: str | Function,
        *,
        retries: int = 1,
        retry_delay: float = 0.0,
        max_delay: float = 3600.0,
        backoff: str = "fixed",
        jitter: float = 0.0,
        timeout: float | None = None,
        deadline: float | None = None,
        idempotent: bool = True,
        priority: int = 50,
        queue: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Flow:
        """Call a handler; its result is the next step's input. A function is known by its own name from then on."""
        step = Step(
            name=name,
            handler=_name_of(handler),
            retries=retries,
            retry_delay=retry_delay,
            max_delay=max_delay,
            backoff=backoff,
            jitter=jitter,
            timeout=timeout,
            deadline=deadline,
            idempotent=idempotent,
            priority=priority,
            queue=queue,
            metadata=_own(metadata),
        )
        return self._with(step, handler)

    def human(
        self,
        name: str,
        *,
        form: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
        due: float | None = None,
        priority: int = 50,
        metadata: Mapping[str, Any] | None = None,
    ) -> Flow:
        """Open a task and wait until a person decides it. What they confirm goes on; what they reject ends the flow."""
        asked = Human(
            name=name,
            form=None if form is None else _own(form),
            roles=_tuple(roles),
            due=due,
            priority=priority,
            metadata=_own(metadata),
        )
        return self._with(asked)

    def build(self) -> Definition:
        """The finished definition; a DefinitionError lists everything that is wrong in its `diagnostics`."""
        problems = (*check_flow(self._name, self._version, self._items), *self._ambiguous_handlers())
        require_none(self._name, problems)
        return Definition(
            name=self._name,
            version=self._version,
            items=tuple(_settled(item) for item in self._items),
            handlers=dict(self._functions),
        )

    def _with(self, item: Item, handler: str | Function = "") -> Flow:
        longer = Flow(self._name, self._version)
        longer._items = (*self._items, item)
        longer._functions = self._functions
        if isinstance(item, Step) and callable(handler):
            longer._functions = (*self._functions, (item.handler, handler))
        return longer

    def _ambiguous_handlers(self) -> Iterator[Problem]:
        known: dict[str, Function] = {}
        for name, function in self._functions:
            if known.setdefault(name, function) is not function:
                message = f"Two different functions are called {name!r}; a handler's name must mean one of them."
                yield problem("HANDLER_AMBIGUOUS", message, f"handlers.{name}")


def _name_of(handler: Any) -> Any:
    """A lambda or a callable object has no name that another process could find it by: left empty, refused by build."""
    if not callable(handler):
        return handler
    name = getattr(handler, "__name__", "")
    return "" if name == _NAMELESS else name


def _own(metadata: Any) -> Any:
    return dict(metadata) if isinstance(metadata, Mapping) else {} if metadata is None else metadata  # pyright: ignore


def _tuple(roles: Any) -> Any:
    """One role may be given as it is; what cannot be read as several is left for build to refuse."""
    return (roles,) if isinstance(roles, str) else tuple(roles) if isinstance(roles, Iterable) else roles  # pyright: ignore


def _settled(item: Item) -> Item:
    """Numbers in the form they are stored in, metadata as a copy nobody else can reach."""
    if isinstance(item, Human):
        return msgspec.structs.replace(
            item,
            form=None if item.form is None else msgspec.json.decode(canonical(item.form)),
            due=None if item.due is None else float(item.due),
            metadata=msgspec.json.decode(canonical(item.metadata)),
        )
    return msgspec.structs.replace(
        item,
        retries=max(1, item.retries),
        retry_delay=float(item.retry_delay),
        max_delay=float(item.max_delay),
        jitter=float(item.jitter),
        timeout=None if item.timeout is None else float(item.timeout),
        deadline=None if item.deadline is None else float(item.deadline),
        metadata=msgspec.json.decode(canonical(item.metadata)),
    )
