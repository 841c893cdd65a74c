"""The worker: leases work, calls handlers, reports results."""
