"""How a request proves who it comes from: tokens of an identity provider, API keys, and a shortcut for development."""
