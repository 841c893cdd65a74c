"""Hooks: middleware around the calls of steps and after the changes of flows."""

from holdfast.runtime.hooks.audit import Audit
from holdfast.runtime.hooks.metrics import Metrics
from holdfast.runtime.hooks.middleware import Call, Middleware
from holdfast.runtime.hooks.notices import FlowContext
from holdfast.runtime.hooks.rate_limit import RateLimit
from holdfast.runtime.hooks.validate import Validate

__all__ = ["Audit", "Call", "FlowContext", "Metrics", "Middleware", "RateLimit", "Validate"]
