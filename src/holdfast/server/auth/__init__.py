"""Authentication of requests: tokens of an identity provider, API keys, and a shortcut for development."""
