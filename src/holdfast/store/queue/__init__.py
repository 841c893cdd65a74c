"""The queue: work, signals and timers, and the workers that lease them."""
