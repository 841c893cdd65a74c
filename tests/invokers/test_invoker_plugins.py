"""Kinds of operations from other distributions: real ones, installed on a path of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import HoldfastError

pytestmark = pytest.mark.anyio

Install = Callable[..., None]

SMS = """
    class Sms:
        name = "sms"

        def handlers(self, engine):
            async def send(ctx, data):
                return {"sent": data["to"], "org": engine.org}
            return {"send": send}

    sms = Sms()
"""


async def pay(ctx: Context, data: object) -> dict[str, str]:
    return {"to": "+49"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.syspath_prepend(tmp_path)

    def install(module: str, code: str, entry: str) -> None:
        (tmp_path / f"{module}.py").write_text(dedent(code))
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[holdfast.invokers]\n{entry}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


async def test_a_kind_of_another_distribution_is_called_by_steps(engine: Engine, install: Install) -> None:
    install("hf_plugin_sms", SMS, "sms = hf_plugin_sms:sms")
    assert engine.load_invokers() == ["sms:send"]
    assert engine.load_invokers() == []  # whoever runs the worker may ask again
    await engine.publish(Flow("tell").step("tell", "sms:send").build())
    instance = await engine.start("tell", {"to": "+49"})
    await engine.drain(timeout=30)
    [step] = await engine.steps(instance.id)
    assert step.output == {"sent": "+49", "org": engine.org}


async def test_its_handlers_may_ask_about_the_instance(engine: Engine, install: Install) -> None:
    asking = SMS.replace('"org": engine.org', '"input": (await ctx.load()).input, "before": dict(ctx.results)')
    install("hf_plugin_asking", asking, "sms = hf_plugin_asking:sms")
    engine.load_invokers()
    await engine.publish(Flow("tell").step("pay", pay).step("tell", "sms:send").build())
    instance = await engine.start("tell", {"n": 1})
    await engine.drain(timeout=30)
    answer = {"sent": "+49", "input": {"n": 1}, "before": {"pay": {"to": "+49"}}}
    assert (await engine.get(instance.id)).data == answer


async def test_a_class_is_made_an_object(engine: Engine, install: Install) -> None:
    install("hf_plugin_class", SMS, "sms = hf_plugin_class:Sms")
    assert engine.load_invokers() == ["sms:send"]


@pytest.mark.parametrize(
    ("code", "entry", "complaint"),
    [
        (
            "raise RuntimeError('broken')",
            "x",
            "hf_plugin_bad cannot be used: it cannot be loaded .RuntimeError: broken",
        ),
        ("class X:\n    name = 'x'\nx = X()", "x", "it has no `handlers`"),
        ("class X:\n    name = 'x'\n    def handlers(self, engine): return []\nx = X()", "x", "no mapping"),
        ("class X:\n    name = 'x'\n    def handlers(self, engine): return {'a': 1}\nx = X()", "x", "no operation"),
        ("class X:\n    name = 'python'\n    def handlers(self, engine): return {}\nx = X()", "x", "built in"),
        ("class X:\n    name = 'a b'\n    def handlers(self, engine): return {}\nx = X()", "x", "is no name"),
        ("", "nothing", "it cannot be loaded"),
    ],
)
async def test_one_that_cannot_be_used_is_named(
    engine: Engine, install: Install, code: str, entry: str, complaint: str
) -> None:
    install("hf_plugin_bad", code, f"bad = hf_plugin_bad:{entry}")
    with pytest.raises(HoldfastError, match=complaint) as refused:
        engine.load_invokers()
    assert refused.value.code == "INVOKER_INVALID"


async def test_two_of_one_kind_are_refused(engine: Engine, install: Install) -> None:
    install("hf_plugin_one", SMS, "sms = hf_plugin_one:sms")
    install("hf_plugin_two", SMS, "sms = hf_plugin_two:sms")
    with pytest.raises(HoldfastError, match="another one has the kind 'sms'"):
        engine.load_invokers()
