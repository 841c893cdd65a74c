"""Telemetry: spans, metrics, incidents."""
