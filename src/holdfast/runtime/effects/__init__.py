"""Effects: messages to the outside world, delivered from the outbox by a worker of its own."""
