"""Operations for system steps beside the handlers of this process: services by their documents, kinds of packages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ssl import SSLContext

from holdfast.errors import DefinitionError
from holdfast.runtime.engine.core import Base
from holdfast.runtime.invokers.auth import Auth, Secret
from holdfast.runtime.invokers.documents import Source
from holdfast.runtime.invokers.holds import Holds
from holdfast.runtime.invokers.openapi import TIMEOUT, Close, Host, Service
from holdfast.runtime.invokers.registry import check_kind, find_invokers, handlers_of


class Invoking(Base):
    _invokers: frozenset[str] = frozenset()  # kinds that were loaded

    def openapi(
        self,
        name: str,
        document: Source,
        *,
        base_url: str | None = None,
        auth: Auth | None = None,
        timeout: float = TIMEOUT,
        headers: Mapping[str, Secret] | None = None,
        tls: SSLContext | None = None,
        only: Collection[str] | None = None,
    ) -> list[str]:
        """Offer the operations of an OpenAPI document as `openapi:NAME.OPERATION_ID`; gives these names.

        The document is a mapping, a Path, or text in JSON or YAML. Secrets in `auth` and `headers` are references:
        `env:NAME`, or a function of the organisation. Call it before the worker starts.
        """
        check_kind(name, "a document")
        if not 0 < timeout <= 3600:
            raise DefinitionError(
                f"The timeout of {name!r} is {timeout} s.", code="OPENAPI_INVALID", hint="Up to 3600."
            )
        host = Host(self._at_end, self.telemetry.current_trace, self._holds())
        handlers = Service(
            name=name,
            source=document,
            base_url=base_url,
            auth=auth,
            timeout=timeout,
            headers=headers,
            tls=tls,
            only=only,
            host=host,
        ).handlers()
        for handler, invocation in handlers.items():
            self.register(handler, invocation)
        return list(handlers)

    def load_invokers(self) -> list[str]:
        """Register the invokers of installed distributions (entry point `holdfast.invokers`) and return the new names.

        Invokers loaded before stay as they are."""
        names: list[str] = []
        for kind, invoker in find_invokers().items():
            if kind in self._invokers:
                continue
            for name, function in handlers_of(invoker, self).items():
                self.register(name, function)
                names.append(name)
            self._invokers |= {kind}
        return names

    def _at_end(self, close: Close) -> None:
        self._stack.push_async_callback(close)

    def _holds(self) -> Holds:
        for middleware in self.hooks.middleware:
            if isinstance(middleware, Holds):
                return middleware
        holds = Holds()
        self.use(holds)
        return holds
