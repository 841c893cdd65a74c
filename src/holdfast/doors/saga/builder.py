"""The verbs of the builder. `Flow` and `Branch` share them; each call answers a new, longer path of the same type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast

import msgspec

from holdfast.doors.known_options import options_of, unknown_option
from holdfast.doors.saga import model
from holdfast.doors.saga.model import Compensation, Function, Item
from holdfast.doors.saga.options import NAMELESS
from holdfast.doors.saga.problems import Problem, problem
from holdfast.doors.saga.values import SENT_RETRY, STEP_RETRY, Handler, Metadata, Retry, Undo

P = ParamSpec("P")
R = TypeVar("R")


def verb(method: Callable[P, R]) -> Callable[P, R]:
    """Refuse options the method does not have, together with all other mistakes, when the flow is built."""
    known = options_of(method)

    @wraps(method)
    def checked(*args: Any, **options: Any) -> Any:
        unknown = [option for option in options if option not in known]
        if not unknown:
            return method(*args, **options)
        answer = cast(Any, method)(*args, **{option: options[option] for option in options if option in known})
        path: Path = args[0] if answer is None else answer  # __init__ answers nothing
        name = args[1] if len(args) > 1 else options.get("name")
        refused = tuple(_unknown(method.__name__, name, option, known) for option in unknown)
        path._complain(refused)  # pyright: ignore[reportPrivateUsage]
        return answer

    return checked


def _unknown(verb: str, name: Any, option: str, known: Iterable[str]) -> Problem:
    if verb == "__init__":
        return problem("FLOW_OPTION_INVALID", unknown_option("The flow", option, known), option)
    if option == "undo":
        message = f"The {verb}() {name!r} cannot be undone."
        return problem("COMPENSATION_MISPLACED", message, f"steps.{name}.undo")
    return problem("STEP_OPTION_INVALID", unknown_option(f"The step {name!r}", option, known), f"steps.{name}.{option}")


class Path:
    """Steps one after another. Mistakes are kept and raised together by `Flow.build`."""

    __slots__ = ("_depth", "_functions", "_items", "_problems")

    def __init__(self) -> None:
        self._items: model.Items = ()
        self._functions: tuple[tuple[str, Function], ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._depth = 0  # how many branches stand inside each other

    @verb
    def step(
        self,
        name: str,
        handler: Handler,
        *,
        undo: Handler | Undo | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        delay: float = 0.0,
        input: Mapping[str, str] | None = None,
        output: Mapping[str, str] | None = None,
        idempotent: bool = True,
        priority: int = 50,
        queue: str | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Call a handler; its result is the next step's input. A function is known by its own name from then on.

        `undo` takes the step back in a rollback; it gets the step's input and output. `input` makes what the handler
        is given, `output` what becomes of its `response`: names → expressions."""
        step = model.Step(
            name=name,
            handler=_name_of(handler),
            **_retry_fields(retry),
            timeout=timeout,
            deadline=deadline,
            delay=delay,
            input=_mapping(input),
            output=_mapping(output),
            idempotent=idempotent,
            priority=priority,
            queue=queue,
            metadata=_own(metadata),
            undo=_compensation(undo),
        )
        longer = self._with(step, complaints=_wrong_retry(retry, f"The step {name!r}", f"steps.{name}"))
        return longer._knowing(handler)._undone(name, undo)

    then = step

    @verb
    def call(
        self,
        name: str,
        handler: Handler,
        *,
        undo: Handler | Undo | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        input: Mapping[str, str] | None = None,
        output: Mapping[str, str] | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Run a function inside the engine's transaction: `async def f(ctx, data)`, with `ctx.conn`. Its writes
        and the end of the step are one commit."""
        call = model.Call(
            name=name, handler=_name_of(handler), **_retry_fields(retry), timeout=timeout, deadline=deadline,
            input=_mapping(input), output=_mapping(output), metadata=_own(metadata), undo=_compensation(undo),
        )  # fmt: skip
        longer = self._with(call, complaints=_wrong_retry(retry, f"The step {name!r}", f"steps.{name}"))
        return longer._knowing(handler)._undone(name, undo)

    @verb
    def webhook(
        self,
        name: str,
        url: str,
        *,
        type: str | None = None,
        secret: str | None = None,
        signed: bool = True,
        envelope: bool = True,
        headers: Mapping[str, Any] | None = None,
        awaits: bool = False,
        input: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Send what arrived, or what `input` makes of it, to a URL. The flow continues at once, or with `awaits` when
        it is delivered, with the answer."""
        return self._with(
            model.Webhook(
                name=name, url=url, type=type, secret=secret, signed=signed, envelope=envelope,
                headers=None if headers is None else _own(headers), awaits=awaits, input=_mapping(input),
                **_retry_fields(retry, SENT_RETRY), timeout=timeout, deadline=deadline, metadata=_own(metadata),
            ),
            complaints=_wrong_retry(retry, f"The step {name!r}", f"steps.{name}"),
        )  # fmt: skip

    @verb
    def mail(
        self,
        name: str,
        *,
        to: str | Iterable[str] | None = None,
        subject: str | None = None,
        text: str | None = None,
        html: str | None = None,
        cc: str | Iterable[str] | None = None,
        bcc: str | Iterable[str] | None = None,
        reply_to: str | Iterable[str] | None = None,
        sender: str | None = None,
        awaits: bool = False,
        input: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Send a mail. Fields left out here come with the data, or from the mapping `input`."""
        return self._with(
            model.Mail(
                name=name, to=_addresses(to), subject=subject, text=text, html=html, cc=_addresses(cc),
                bcc=_addresses(bcc), reply_to=_addresses(reply_to), sender=sender, awaits=awaits, input=_mapping(input),
                **_retry_fields(retry, SENT_RETRY), timeout=timeout, deadline=deadline, metadata=_own(metadata),
            ),
            complaints=_wrong_retry(retry, f"The step {name!r}", f"steps.{name}"),
        )  # fmt: skip

    @verb
    def human(
        self,
        name: str,
        *,
        undo: Handler | Undo | None = None,
        form: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
        due: float | None = None,
        priority: int = 50,
        metadata: Metadata | None = None,
    ) -> Self:
        """Open a task and wait until a person decides it. A confirmation continues the flow; a rejection ends it."""
        asked = None if form is None else _own(form)
        return self._with(
            model.Human(
                name=name, form=asked, roles=_tuple(roles), due=due, priority=priority, metadata=_own(metadata),
                undo=_compensation(undo),
            )
        )._undone(name, undo)  # fmt: skip

    @verb
    def wait_event(
        self,
        name: str,
        event: str | None = None,
        *,
        undo: Handler | Undo | None = None,
        key: str | None = None,
        early: bool | None = None,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Wait for an event, called like the step unless said otherwise; its payload is the next step's input."""
        event = name if event is None else event
        return self._with(
            model.WaitEvent(
                name=name, event=event, key=key, early=early, deadline=deadline, metadata=_own(metadata),
                undo=_compensation(undo),
            )
        )._undone(name, undo)  # fmt: skip

    @verb
    def sleep(
        self,
        name: str,
        seconds: float | None = None,
        *,
        after: str | None = None,
        until: str | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Wait: for a number of seconds, or for what an expression gives, or for the next match of a cron line."""
        return self._with(
            model.Sleep(
                name=name, seconds=seconds, after=after, until=until, cron=cron, timezone=timezone,
                metadata=_own(metadata),
            )
        )  # fmt: skip

    @verb
    def sub_flow(
        self,
        name: str,
        flow: str,
        version: int | None = None,
        *,
        undo: Handler | Undo | None = None,
        input: Mapping[str, str] | None = None,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Start another flow, by default its newest version, and continue with its result."""
        return self._with(
            model.SubFlow(
                name=name, flow=flow, version=version, undo=_compensation(undo), input=_mapping(input),
                deadline=deadline, metadata=_own(metadata),
            )
        )._undone(name, undo)  # fmt: skip

    @verb
    def save_point(self, name: str, *, metadata: Metadata | None = None) -> Self:
        """Set a save point: a later failure undoes the steps after it, and none before."""
        return self._with(model.SavePoint(name=name, metadata=_own(metadata)))

    @verb
    def condition(
        self, name: str, expression: str, otherwise: Branch | None = None, *, metadata: Metadata | None = None
    ) -> Self:
        """Branch on an expression. True: the next items. False: `otherwise`, or the end of this branch without one."""
        asked = model.Condition(name=name, expression=expression, metadata=_own(metadata))
        if otherwise is None:
            return self._with(asked)
        if not isinstance(otherwise, Branch):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"The `otherwise` of {name!r} is {type(otherwise).__name__}, not Branch."
            return self._with(asked)._refusing("BRANCH_INVALID", message, name)
        return self._with(msgspec.structs.replace(asked, otherwise=otherwise._items), (otherwise,))

    @verb
    def rejoin(self) -> Self:
        """The ways of the innermost open condition meet here; at the end of an `otherwise`: it comes back."""
        return self._with(model.Rejoin())

    @verb
    def fork(self, name: str, *branches: Branch, metadata: Metadata | None = None) -> Self:
        """Run branches side by side, each with a copy of the value. `join` follows, unless the flow ends in them."""
        sound, complaints = _sorted_out(name, [(branch, None) for branch in branches])
        paths = tuple(branch._items for branch in sound)
        fork = model.Fork(name=name, branches=paths, metadata=_own(metadata))
        return self._with(fork, sound, complaints)

    @verb
    def parallel(
        self, name: str, *tasks: Branch | Function | tuple[str, Handler], metadata: Metadata | None = None
    ) -> Self:
        """A fork of single handlers or branches that waits for all of them, unless a `join` says otherwise."""
        sound, complaints = _sorted_out(name, [(task, _task(task)) for task in tasks])
        paths = tuple(branch._items for branch in sound)
        return self._with(model.Parallel(name=name, branches=paths, metadata=_own(metadata)), sound, complaints)

    @verb
    def join(self, name: str, mode: Literal["all", "any"] = "all", *, metadata: Metadata | None = None) -> Self:
        """Go on when all branches of the fork before are done, or with the first that completes."""
        return self._with(model.Join(name=name, mode=mode, metadata=_own(metadata)))

    def _with(self, item: Item, inner: tuple[Branch, ...] = (), complaints: tuple[Problem, ...] = ()) -> Self:
        longer = copy(self)
        longer._items = (*self._items, item)
        longer._functions = (*self._functions, *(known for branch in inner for known in branch._functions))
        longer._problems = (*self._problems, *complaints, *(found for branch in inner for found in branch._problems))
        longer._depth = max(self._depth, *(branch._depth + 1 for branch in inner)) if inner else self._depth
        return longer

    def _knowing(self, handler: Any) -> Self:
        if callable(handler) and (name := _name_of(handler)) != NAMELESS:
            self._functions = (*self._functions, (name, handler))
        return self

    def _undone(self, name: str, undo: Any) -> Self:
        """Remember the handler of a compensation; refuse other values."""
        if not isinstance(undo, Undo):
            if undo is None or isinstance(undo, str) or callable(undo):
                return self._knowing(undo)
            message = f"The step {name!r} has undo {undo!r}; it must be one function, a handler's name or Undo(…)."
            return self._refusing("STEP_OPTION_INVALID", message, f"{name}.undo")
        if isinstance(undo.handler, Undo):
            message = f"The step {name!r} has undo given twice: an Undo inside another."
            return self._refusing("STEP_OPTION_INVALID", message, f"{name}.undo")
        wrong = _wrong_retry(undo.retry, f"The undo of step {name!r}", f"steps.{name}.undo")
        longer = self._knowing(undo.handler)
        longer._complain(wrong)
        return longer

    def _complain(self, problems: tuple[Problem, ...]) -> None:
        self._problems = (*self._problems, *problems)

    def _refusing(self, code: str, message: str, name: str) -> Self:
        refused = copy(self)
        refused._problems = (*self._problems, problem(code, message, f"steps.{name}"))
        return refused

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name != "on_failure":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            flow = f"flow {self._name!r}" if hasattr(self, "_name") else "branch"
            before = f"step {self._items[-1].name!r}" if self._items else "step before"
            raise AttributeError(
                f"The {flow} has no on_failure(): give the {before} its compensation as undo=handler, or as "
                "undo=Undo(handler, name=…)."
            )


class Branch(Path):
    """A path inside a flow: `Branch().step("ship", ship)`, for `fork`, `parallel` and `condition`."""

    __slots__ = ()


def _sorted_out(name: str, given: list[tuple[Any, Branch | None]]) -> tuple[tuple[Branch, ...], tuple[Problem, ...]]:
    """Split the arguments into branches and complaints about all others."""
    branches = [(what, what if isinstance(what, Branch) else made) for what, made in given]
    complaints = [
        problem("BRANCH_INVALID", f"Branch {number} of {name!r} is {_wrong_branch(what)}.", f"steps.{name}")
        for number, (what, branch) in enumerate(branches, 1)
        if branch is None
    ]
    return tuple(branch for _, branch in branches if branch is not None), tuple(complaints)


def _wrong_branch(what: Any) -> str:
    return (
        "a lambda or an object without a name" if _name_of(what) == NAMELESS else f"{type(what).__name__}, not Branch"
    )


def _task(task: Any) -> Branch | None:
    if isinstance(task, tuple) and len(cast(tuple[Any, ...], task)) == 2:
        name, handler = cast(tuple[Any, Any], task)
        return Branch().step(name, handler)
    is_named = callable(cast(Any, task)) and _name_of(task) != NAMELESS
    return Branch().step(_name_of(task), cast(Function, task)) if is_named else None


def _name_of(handler: Any) -> Any:
    """A lambda or a callable object has no name that another process could find it by: refused by build."""
    return getattr(handler, "__name__", NAMELESS) if callable(handler) else handler


def _retry_fields(retry: Any, own: Retry = STEP_RETRY) -> dict[str, Any]:
    """The fields of an item that a Retry sets; `retries` is the word of stored definitions.

    A field the Retry leaves open keeps the item's `own`. The fields are given even without a Retry: stored sources name
    the seconds even where they are the default. Only the attempts are left to the flow, or to the outbox, then."""
    is_given = isinstance(retry, Retry)
    said = retry if is_given else Retry()
    return {
        "retries": own.attempts if is_given and said.attempts is None else said.attempts,
        "retry_delay": own.delay if said.delay is None else said.delay,
        "max_delay": own.max_delay if said.max_delay is None else said.max_delay,
        "backoff": own.backoff if said.backoff is None else said.backoff,
        "jitter": own.jitter if said.jitter is None else said.jitter,
    }


def _wrong_retry(retry: Any, owner: str, place: str) -> tuple[Problem, ...]:
    if retry is None or isinstance(retry, Retry):
        return ()
    message = f"{owner} has retry {retry!r}; it must be a Retry, as in retry=Retry(attempts=3), or None."
    return (problem("STEP_OPTION_INVALID", message, f"{place}.retry"),)


def _compensation(undo: Any) -> Compensation | None:
    """The compensation as it is stored; nothing for what `_undone` refuses."""
    if undo is None or not (isinstance(undo, str | Undo) or callable(undo)):
        return None
    undo = undo if isinstance(undo, Undo) else Undo(undo)
    if isinstance(undo.handler, Undo):
        return None
    return Compensation(
        name=_name_of(undo.handler) if undo.name is None else undo.name,
        handler=_name_of(undo.handler),
        **_retry_fields(undo.retry),
        timeout=undo.timeout,
        idempotent=undo.idempotent,
        priority=undo.priority,
        queue=undo.queue,
        metadata=_own(undo.metadata),
    )


def _own(metadata: Any) -> Any:
    return dict(metadata) if isinstance(metadata, Mapping) else {} if metadata is None else metadata  # pyright: ignore


def _mapping(given: Any) -> Any:
    return None if given is None else _own(given)


def _addresses(given: Any) -> Any:
    return given if given is None or isinstance(given, str) else list(given)


def _tuple(roles: Any) -> Any:
    """Turn roles into a tuple: one role may be a string; `build` refuses other types."""
    return (roles,) if isinstance(roles, str) else tuple(roles) if isinstance(roles, Iterable) else roles  # pyright: ignore
