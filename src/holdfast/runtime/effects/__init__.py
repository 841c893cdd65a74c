"""Effects: what the outside world is told, delivered from the outbox by a worker of its own."""
