"""Refusals of HTTP itself; all others come from `holdfast.errors`, and one handler renders both."""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError


class PreconditionFailed(HoldfastError):
    """The instance changed since the version named in If-Match."""

    code = "PRECONDITION_FAILED"
    http_status = 412
    exit_code = 5


class PreconditionRequired(HoldfastError):
    """This server changes an instance only for a request with If-Match."""

    code = "PRECONDITION_REQUIRED"
    http_status = 428


class NotAcceptable(HoldfastError):
    """The answer has none of the media types the request accepts."""

    code = "NOT_ACCEPTABLE"
    http_status = 406


class UnsupportedMedia(HoldfastError):
    """The body has a media type this route does not read."""

    code = "MEDIA_TYPE_UNSUPPORTED"
    http_status = 415


class AmbiguousLength(HoldfastError):
    """The request says in two ways how long its body is."""

    code = "LENGTH_AMBIGUOUS"
    http_status = 400


class BodyTooLarge(HoldfastError):
    """The body has more bytes than this server reads."""

    code = "BODY_TOO_LARGE"
    http_status = 413


class TargetTooLong(HoldfastError):
    """The path and query have more bytes than this server reads."""

    code = "TARGET_TOO_LONG"
    http_status = 414


class HeadersTooLarge(HoldfastError):
    """The headers are more than this server reads."""

    code = "HEADERS_TOO_LARGE"
    http_status = 431


class RateLimited(HoldfastError):
    """Too many requests in a short time."""

    code = "RATE_LIMITED"
    http_status = 429

    def __init__(self, message: str = "", *, retry_after: float = 1.0, **options: Any) -> None:
        self.retry_after = retry_after  # seconds
        super().__init__(message, **options)


class Invalid(HoldfastError):
    """The request does not fit what the route takes."""

    code = "REQUEST_INVALID"
    http_status = 422

    def __init__(self, message: str = "", *, errors: tuple[dict[str, Any], ...] = (), **options: Any) -> None:
        self.errors = errors  # place and message of each misfit
        super().__init__(message, **options)
