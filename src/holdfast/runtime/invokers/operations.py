"""Operations as a document describes them, read once: method, path, parameters, body, what secures it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, cast

import msgspec

from holdfast.runtime.invokers.documents import Document, Node
from holdfast.runtime.invokers.errors import DocumentError, shown
from holdfast.runtime.invokers.parameters import Parameter
from holdfast.runtime.invokers.schemas import Schemas, properties_of
from holdfast.runtime.schemas.schemas import Check

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PLACES: Final = ("path", "query", "header", "cookie")
# Set by the engine or by the content, whatever the document says about them.
OURS: Final = frozenset({
    "accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
    "idempotency-key", "te", "traceparent", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f?#\\{}]")
_HOLE: Final = re.compile(r"\{([^{}]*)\}")
_NAME: Final = re.compile(r"[^\x00-\x20\x7f]{1,200}")
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json|\*/\*|application/\*")


class Body(msgspec.Struct, frozen=True):
    required: bool
    media_type: str | None  # None: the document asks for something that cannot be written
    names: frozenset[str]  # of its members, as far as the schema names them
    check: Check | None


class Operation(msgspec.Struct, frozen=True):
    id: str
    method: str
    path: str  # the template
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[tuple[str, ...], ...] | None  # alternatives of scheme names; empty: open; None: nothing is said

    @property
    def title(self) -> str:
        return f"{self.method} {self.path}"


def read_operations(document: Document, only: Collection[str] | None = None) -> list[Operation]:
    """Read every operation with an `operationId`, or those in `only`; the others are not examined."""
    reading = _Reading(document, only)
    found: dict[str, Operation] = {}
    for operation in reading.operations():
        if operation.id in found:
            raise DocumentError(f"The operationId {shown(operation.id)} is there twice.")
        found[operation.id] = operation
    missing = set(only or ()) - found.keys()
    if missing:
        raise DocumentError(f"The document has no operation {shown(min(missing))}.", hint="Check its operationId.")
    if not found:
        raise DocumentError("The document has no operation with an operationId.", hint="A step calls it by this name.")
    return list(found.values())


class _Reading:
    def __init__(self, document: Document, only: Collection[str] | None) -> None:
        self._document = document
        self._only = only
        self._schemas = Schemas(document)

    def operations(self) -> Iterator[Operation]:
        paths = self._document.part(self._document.root.get("paths") or {}, "`paths`")
        for path, item in paths.items():
            if path.startswith("x-"):
                continue
            _check_template(path)
            place = self._document.part(item, f"The path {shown(path)}")
            for method in METHODS:
                if method in place:
                    given = self._document.part(place[method], f"{method.upper()} {shown(path)}")
                    if self._is_wanted(given.get("operationId")):
                        yield self._operation(path, method.upper(), place, given)

    def _is_wanted(self, name: Any) -> bool:
        return name is not None if self._only is None else name in self._only

    def _operation(self, path: str, method: str, place: Node, given: Node) -> Operation:
        name, where = given["operationId"], f"{method} {path}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise DocumentError(f"{where}: {shown(name)} is no operationId.", hint="Use up to 200 visible characters.")
        parameters = self._parameters([*_list(place, "parameters", where), *_list(given, "parameters", where)], where)
        missing = set(_HOLE.findall(path)) - {p.name for p in parameters if p.place == "path"}
        if missing:
            raise DocumentError(f"{where}: the path has no parameter for {shown(sorted(missing)[0])}.")
        body = self._body(given["requestBody"], where) if "requestBody" in given else None
        return Operation(name, method, path, parameters, body, self._security(given, where))

    def _parameters(self, given: list[Any], where: str) -> tuple[Parameter, ...]:
        """Read parameters; the operation's own win over the path's, the last of two with one name and place wins."""
        found: dict[tuple[str, str], Parameter] = {}
        for item in given:
            parameter = self._parameter(self._document.part(item, f"{where}: a parameter"), where)
            if parameter.place != "header" or parameter.name.lower() not in OURS:
                found[parameter.place, parameter.name] = parameter
        return tuple(found.values())

    def _parameter(self, given: Node, where: str) -> Parameter:
        name, place = given.get("name"), given.get("in")
        if not isinstance(name, str) or not name or place not in PLACES:
            raise DocumentError(f"{where}: a parameter has no name, or no place among {', '.join(PLACES)}.")
        if place in ("header", "cookie") and not TOKEN.fullmatch(name):
            raise DocumentError(f"{where}: {shown(name)} is no name for a {place}.")
        style = given.get("style", "form" if place in ("query", "cookie") else "simple")
        content: Any = given.get("content")
        schema = given.get("schema")
        if isinstance(content, dict) and content:
            schema = self._document.part(next(iter(cast("Node", content).values())), f"{where}: {name}").get("schema")
        return Parameter(
            name=name,
            place=place,
            required=place == "path" or given.get("required") is True,
            style=str(style),
            explode=bool(given.get("explode", style == "form")),
            is_json="content" in given,
            check=self._schemas.check(schema, f"{where}, parameter {shown(name)}"),
        )

    def _body(self, given: Any, where: str) -> Body:
        body = self._document.part(given, f"{where}: the requestBody")
        content = self._document.part(body.get("content") or {}, f"{where}: the content of the body")
        required = body.get("required") is True
        media = next((kind for kind in content if _JSON.fullmatch(kind.partition(";")[0].strip().lower())), None)
        if media is None:
            return Body(required, None, frozenset(), None)
        schema = self._document.part(content[media], f"{where}: the content of the body").get("schema")
        check = self._schemas.check(schema, f"{where}, body")
        names = () if schema is None else properties_of(self._schemas.standing_alone(schema, where))
        return Body(required, "application/json" if "*" in media else media, frozenset(names), check)

    def _security(self, given: Node, where: str) -> tuple[tuple[str, ...], ...] | None:
        wanted: Any = given.get("security", self._document.root.get("security"))
        if wanted is None:
            return None
        if not isinstance(wanted, list) or not all(isinstance(item, dict) for item in cast("list[Any]", wanted)):
            raise DocumentError(f"{where}: `security` is no list of schemes.")
        return tuple(tuple(alternative) for alternative in cast("list[Node]", wanted))


def _list(given: Node, key: str, where: str) -> list[Any]:
    found: Any = given.get(key) or []
    if not isinstance(found, list):
        raise DocumentError(f"{where}: `{key}` is not a list.")
    return cast("list[Any]", found)


def _check_template(path: str) -> None:
    plain = _HOLE.sub("", path)
    if not path.startswith("/") or path.startswith("//") or not plain.isascii() or _UNFIT.search(plain):
        raise DocumentError(f"The path {shown(path)} is no path template.", hint="Write it like /orders/{order_id}.")
