"""A worker process that delivers webhooks: `python effect_process.py <dsn> <host:port> <lease>`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from effect_flows import secrets

from holdfast import Engine
from holdfast.runtime.effects.options import EffectOptions

HERE = Path(__file__).parent


@contextmanager
def effects_process(dsn: str, allow: str, lease: float = 1.0) -> Iterator[subprocess.Popen[str]]:
    """Once it is ready; whatever it is doing at the end, it is gone then."""
    process = subprocess.Popen(
        [sys.executable, __file__, dsn, allow, str(lease)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


async def _serve(dsn: str, allow: str, lease: float) -> None:
    async with Engine(dsn) as engine:
        engine.effect_options = EffectOptions(allow=(allow,), secrets=secrets)
        async with engine.worker(lease=lease):
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], float(sys.argv[3])))
