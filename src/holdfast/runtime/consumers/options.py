"""Settings of consumers and of deliveries to them; the environment gives the defaults."""

from __future__ import annotations

import msgspec

from holdfast.settings import Settings


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    pending_resend: float = 40.0  # until a fact that nobody received is sent again
    delivered_resend: float = 240.0  # until one that was received, and not processed, is sent again
    max_attempts: int = 10  # of a consumer that names no number of its own
    ttl: float = 30.0  # without a beat a consumer counts as down after that
    recheck: float = 60.0  # between two probes of a pushed consumer that could not be reached
    page: int = 200  # facts of one consumer in one claim
    scan: float = 5.0  # between scans without a hint
    push_timeout: float = 30.0  # for one push
    threads: int = 32  # for plain handlers

    @classmethod
    def from_settings(cls, settings: Settings) -> ConsumerOptions:
        return cls(
            pending_resend=settings.ack_pending_resend,
            delivered_resend=settings.ack_delivered_resend,
            max_attempts=settings.ack_max_attempts,
            ttl=settings.consumer_ttl,
            recheck=settings.consumer_recheck,
            page=settings.ack_page,
        )
