"""A nightly load: three extractors side by side, a join, and a load that all three wait for.

    python examples/sagas_pipeline.py

    nightly ┬ extract_csv    ┬ gathered ── load ── publish_report
            ├ extract_json   │
            └ extract_sqlite ┘

Every extractor stages what it found in a file, and a compensation removes the file. The second night one source is
broken: nothing is loaded, and no staged file is left behind. It runs on the database of HOLDFAST_DSN, otherwise on the
embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast import Branch, Context, DoNotRetry, Engine, Flow, Retry, Undo

Data = dict[str, Any]


def extract_csv(ctx: Context, night: Data) -> Data:
    with Path(night["folder"], "shop.csv").open(newline="") as file:
        return stage(night, "csv", [{"id": row["id"], "amount": int(row["amount"])} for row in csv.DictReader(file)])


def extract_json(ctx: Context, night: Data) -> Data:
    """A source that is away at first: the step is called again."""
    if ctx.attempt == 1:
        raise ConnectionError("The web shop does not answer.")
    text = Path(night["folder"], "web.json").read_text()
    try:
        return stage(night, "json", json.loads(text))
    except json.JSONDecodeError as broken:
        raise DoNotRetry(f"The web shop sent no JSON: {broken.msg}") from broken


def extract_sqlite(ctx: Context, night: Data) -> Data:
    with closing(sqlite3.connect(Path(night["folder"], "till.db"))) as till:
        rows = till.execute("select id, amount from sales order by id").fetchall()
    return stage(night, "sqlite", [{"id": id, "amount": amount} for id, amount in rows])


def stage(night: Data, source: str, rows: list[Data]) -> Data:
    """Rows stay in the file; the flow carries only where they are, so it stays small whatever the night brings."""
    file = Path(night["folder"], f"staged-{source}.json")
    file.write_text(json.dumps(rows))
    return {"file": str(file), "rows": len(rows)}


def unstage(ctx: Context, undo: Data) -> None:
    if undo["output"] is not None:  # an extractor that failed has staged nothing
        Path(undo["output"]["file"]).unlink(missing_ok=True)


def load(ctx: Context, gathered: Data) -> Data:
    """What comes out of a join: the answer of the last step of every branch, by its name."""
    total = 0
    for extracted in gathered["outputs"].values():
        total += sum(row["amount"] for row in json.loads(Path(extracted["file"]).read_text()))
    return {"sources": list(gathered["outputs"]), "total": total}


def publish_report(ctx: Context, report: Data) -> Data:
    return report


def extractor(name: str, handler: Any) -> Branch:
    return Branch().step(
        name, handler, undo=Undo(unstage, name=f"un{name}", retry=Retry(attempts=3)), retry=Retry(attempts=3)
    )


NIGHTLY = (
    Flow("nightly_load")
    .fork(
        "nightly",
        extractor("extract_csv", extract_csv),
        extractor("extract_json", extract_json),
        extractor("extract_sqlite", extract_sqlite),
    )
    .join("gathered", "all")
    .step("load", load)
    .step("publish_report", publish_report)
    .build()
)


def staged(folder: Path) -> int:
    return len(list(folder.glob("staged-*")))


def prepare(folder: Path, web: str) -> None:
    folder.mkdir()
    (folder / "shop.csv").write_text("id,amount\nS1,10\nS2,20\n")
    (folder / "web.json").write_text(web)
    with closing(sqlite3.connect(folder / "till.db")) as till, till:
        till.execute("create table sales (id text, amount int)")
        till.execute("insert into sales values ('T1', 5), ('T2', 5)")


async def run_night(engine: Engine, folder: Path, web: str) -> tuple[str, Any]:
    prepare(folder, web)
    instance = await engine.start("nightly_load", {"folder": str(folder)})
    await engine.drain(timeout=30)
    ended = await engine.get(instance.id)
    print(f"\n{folder.name}: {ended.status} {ended.data if ended.status == 'completed' else ended.reason}")
    for step in await engine.steps(instance.id):
        print(f"  {step.status:<12} {step.name} (calls: {step.attempts})")
    print(f"  staged files left: {staged(folder)}")
    return ended.status, ended.data


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        monday, tuesday = Path(place, "monday"), Path(place, "tuesday")
        async with Engine() as engine:
            await engine.publish(NIGHTLY)
            good = await run_night(engine, monday, json.dumps([{"id": "W1", "amount": 60}]))
            bad = await run_night(engine, tuesday, "<html>502 Bad Gateway</html>")
        assert good == ("completed", {"sources": ["extract_csv", "extract_json", "extract_sqlite"], "total": 100})
        assert bad[0] == "failed"
        assert (staged(monday), staged(tuesday)) == (3, 0), "a night that failed leaves nothing behind"
    print("\nOne night loaded, one taken back.")


if __name__ == "__main__":
    asyncio.run(main())
