"""Definitions keep the hashes they were published under: instances that pinned them go on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Machine, load_steps
from holdfast.doors.registry import source_of
from holdfast.doors.saga import Branch, Flow, Retry, Undo
from holdfast.doors.saga.model import Definition
from holdfast.graph.compile import compile_graph
from holdfast.payloads import hash_json

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
GOLDEN: dict[str, list[str]] = json.loads((Path(__file__).parent / "golden_hashes.json").read_text())

TWICE = Retry(attempts=2)
FLOWS = [  # with the hash of the stored source and that of the compiled graph
    (
        Flow("plain").step("reserve", "reserve").step("ship", "ship"),
        "5b664272f69af0bc9bda1536b6a0fb1f4b9e6626ce6a6c2f1a1870c2c5bc8bd9",
        "fd1478629ba3f72637e80b9a5edbd770079997819f631a6e9c27888292ba168b",
    ),
    (
        Flow("undone").step("reserve", "reserve", undo="release").step("ship", "ship"),
        "824f008938a4b94455deb404acc8243d1d8ef0287fb5fd78f605d34321b644ac",
        "d4cd22909871a00213ac06672c6b312cc52b611752f71e2958c06c082b7d9b76",
    ),
    (
        Flow("named").step("charge", "payments.charge", undo=Undo("payments.refund", name="refund")),
        "9058291a6614730afe1bc337617e681b3cd18862634adda42059caf831b8575b",
        "4657a04bbe02fa15f7dc5fd1fd95c1f0908b4a05efa56330b9e1ce265bb66bfb",
    ),
    (
        Flow("often", attempts=3)
        .step("a", "a", retry=Retry(attempts=5, delay=1, backoff="exponential", max_delay=60, jitter=0.2))
        .step("b", "b", retry=Retry(delay=2))
        .step("c", "c", idempotent=False, retry=Retry(attempts=9)),
        "204ce09288359abb68a8550e381069a4884669d7a5ea0e58a60da0bdfdbf6f7f",
        "5a462ee1d39064368802fc1b9451b45b485219568edb4b5369f6f72e5404b01f",
    ),
    (
        Flow("options", attempts=2).step(
            "a",
            "a",
            undo=Undo(
                "b",
                retry=Retry(attempts=3, delay=0.5, backoff="linear"),
                timeout=20,
                priority=90,
                queue="bank",
                metadata={"k": [1, 2]},
            ),
            retry=Retry(attempts=0),
            timeout=9,
        ),
        "0787e413bd47f755de57bd869969feb3946c99eddf4d73b81b2d63ab7b9e99e9",
        "5e8413f18aefdaa362b13ae79c82ff54b83c015314298f5086eca0d58d81cb4d",
    ),
    (
        Flow("once").step("a", "a", undo=Undo("b", idempotent=False, retry=Retry(attempts=9))),
        "1e6f433e2ff40538296794063d1dfa0607ac69d0536c8fbf6cd2ecc6135ad51a",
        "e26419b7788ec7524607e3ba77c0a09fb3a29dd1e52d1614f240f94f3bae258a",
    ),
    (
        Flow("others", dlq=True, timeout=3600)
        .human("sign", roles=["boss"], undo=Undo("u", name="unsign"))
        .wait_event("paid", undo=Undo("u", name="repay"))
        .sub_flow("child", "g", undo=Undo("u", name="unchild", retry=TWICE)),
        "56a8badc47bb363aa89fd7fe0c85edb2a063c9ee805ab6f0be0b955f33323750",
        "a1fefd2248b5bf864dee74f2b95a69114dfd81195dad83e81ff9e7edaad32416",
    ),
    (
        Flow("branches")
        .fork(
            "f",
            Branch().step("a", "a", delay=5, undo=Undo("undo", name="un_a")),
            Branch()
            .condition(
                "c",
                "input.n > 1",
                otherwise=Branch().step("d", "d", retry=TWICE, undo=Undo("undo", name="un_d")).rejoin(),
            )
            .step("b", "b"),
        )
        .join("j"),
        "212aa6e324b857105f7b4b5d81ae501661515021282d37277063bbb4e60c894c",
        "90b5c8976ad6a78cea2ee654f709e9eef3dd138c09ba9042f027aaf7f8fd4206",
    ),
    (
        Flow("sent")
        .webhook("tell", "https://shop.example/hook", type="order.paid")
        .mail("thank", to="ann@example.org", subject="Hi")
        .step("keep", "keep"),
        "5fd790fdd0c42590f5b568012127e7a889d2082ceda907c0713c99370a260877",
        "e400fa82f704569efb9f3ec1a01f2c9ae5d87dafa036ce47ea48e4e778b32451",
    ),
    (
        Flow("sent_often", attempts=2)
        .webhook("tell", "https://shop.example/hook", retry=Retry(attempts=3))
        .mail("thank", to="ann@example.org", retry=Retry(attempts=2, delay=1))
        .webhook(
            "ask",
            "https://shop.example/ask",
            awaits=True,
            retry=Retry(attempts=4, delay=0, backoff="fixed", max_delay=60, jitter=0),
        ),
        "62b86a67d992b79e0a97a9f82dfb0888c2e9ffc210d4cc9b7ee793ac983ec8f1",
        "119a6912039270a5a5d8715ea9d2f27d3fdef8ec33949570d210e97475fdbe1f",
    ),
    (
        Flow("called", attempts=3)
        .call(
            "book",
            "book",
            undo=Undo("cancel", retry=Retry(attempts=4)),
            input={"n": "input.id"},
            retry=TWICE,
        )
        .call("note", "note", retry=Retry(delay=1))
        .call("plain", "plain"),
        "00160866e789b2c6d36a9a3c422bccf94961c81374bb651cd315d93d8b358797",
        "4dcc5b434c7b152839bd8f832c4b821c695d524ed4e9b5ac4087765e25e4e32a",
    ),
]


def _definitions(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    if path.suffix == ".yaml":
        return list(load_steps(path.read_text(), name=path.name).require_sound())
    if path.suffix == ".json":
        return [Machine.load(path, path.with_name(path.name.replace(".blueprint.", ".policy.")))]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(f"golden_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, Definition)]


def test_every_example_keeps_its_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the hash of its compiled graph and of its stored source."""
    found: dict[str, list[str]] = {}
    written = [path for path in sorted(EXAMPLES.glob("*.py")) if "Flow(" in path.read_text()]
    machines = EXAMPLES.glob("machines/*.blueprint.json")
    for path in [*written, *sorted(EXAMPLES.glob("steps/*.yaml")), *sorted(machines)]:
        for definition in _definitions(path, monkeypatch):
            source = source_of(definition)
            name = f"{path.relative_to(EXAMPLES)}:{source.name}@{source.version}"
            found[name] = [compile_graph(source.lower()).hash, hash_json(source.stored)]
    assert found == GOLDEN


@pytest.mark.parametrize(("flow", "source", "graph"), FLOWS, ids=lambda value: getattr(value, "_name", ""))
def test_every_option_keeps_the_hashes(flow: Flow, source: str, graph: str) -> None:
    written = source_of(flow.build())
    assert (hash_json(written.stored), compile_graph(written.lower()).hash) == (source, graph)
