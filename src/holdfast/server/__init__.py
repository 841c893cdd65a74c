"""The HTTP API: routes over the engine, access to them, and the form of their errors."""
