"""A process of the engine: event loop, garbage collector, pauses."""
