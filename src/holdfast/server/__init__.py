"""The HTTP API: routes over the engine, who may use them, and how failures are told."""
