"""Effects of a server: messages to the outside world and their delivery."""

from __future__ import annotations

from typing import Any

from holdfast.client.connection import EVERYTHING, Connection, given, id_part, some_id_part, taken
from holdfast.runtime.effects.outbox import EffectPage
from holdfast.store.effects import Effect

Effects = list[Effect]


class ClientEffects:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def of(self, instance_id: str) -> Effects:
        """List all effects of one instance."""
        found = self._server.pages(f"/instances/{id_part(instance_id)}/effects", EVERYTHING)
        return [_effect(item) for item in found]

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        flow: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> EffectPage:
        """Read up to `limit` effects, over several pages: a page may be short although more follow."""
        found = self._server.pages("/effects", limit, after=some_id_part(after), status=status, kind=kind, flow=flow)
        return EffectPage([_effect(item) for item in found], None)

    def get(self, effect_id: str) -> Effect:
        return _effect(self._server.get(f"/effects/{id_part(effect_id)}"))

    def resend(self, effect_id: str, *, by: str | None = None, reason: str | None = None) -> Effect:
        return _effect(self._server.act(f"/effects/{id_part(effect_id)}/replay", given(reason=reason), by))


def _effect(item: dict[str, Any]) -> Effect:
    """Read an effect without its node's configuration, which HTTP does not carry."""
    return taken(Effect, {"config": None, **item})
