"""Who attacks what was published, each with a connection of its own."""

from __future__ import annotations

from typing import Any

import psycopg

Db = psycopg.Connection[Any]
ATTACKERS = ("owner", "worker", "tenant", "stranger")
