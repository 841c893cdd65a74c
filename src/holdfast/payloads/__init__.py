"""Strict JSON at every edge: `encode` and `decode` for storage, `canonical` and `hash_json` for comparison."""

from holdfast.payloads.encoding import MAX_BYTES, WARN_BYTES, canonical, decode, encode, hash_json, is_large
from holdfast.payloads.plain import MAX_DEPTH

__all__ = ["MAX_BYTES", "MAX_DEPTH", "WARN_BYTES", "canonical", "decode", "encode", "hash_json", "is_large"]
