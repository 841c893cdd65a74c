"""The HTTP API: routes over the engine, access to them, and the form of their errors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.server.access.identity import Identity
    from holdfast.server.app import create_app
    from holdfast.server.auth.capabilities import granted, has_all, has_any
    from holdfast.server.auth.cedar import CedarPolicies
    from holdfast.server.auth.chain import open_chain
    from holdfast.server.auth.jwt_settings import Claims, JwtSettings
    from holdfast.server.auth.settings import AuthSettings
    from holdfast.server.settings import ServerSettings

__all__ = [
    "AuthSettings",
    "CedarPolicies",
    "Claims",
    "Identity",
    "JwtSettings",
    "ServerSettings",
    "create_app",
    "granted",
    "has_all",
    "has_any",
    "open_chain",
]

_HOMES = {
    "AuthSettings": "auth.settings",
    "CedarPolicies": "auth.cedar",
    "Claims": "auth.jwt_settings",
    "Identity": "access.identity",
    "JwtSettings": "auth.jwt_settings",
    "ServerSettings": "settings",
    "create_app": "app",
    "granted": "auth.capabilities",
    "has_all": "auth.capabilities",
    "has_any": "auth.capabilities",
    "open_chain": "auth.chain",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that one module of the package does not bring all of them."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
