"""Chapter 14 of the text: its two examples, as they are written there."""

from __future__ import annotations

from typing import Any

import pytest
from shop import ALWAYS, Shop

from holdfast import Branch, Flow, Undo

pytestmark = pytest.mark.anyio


# --- 14.1 -------------------------------------------------------------------------------------------------------------


def order_saga(shop: Shop) -> Flow:
    return (
        shop.flow()
        .step("reserve_funds", "do", undo=Undo("do", name="refund_funds"))
        .step("ship_order", "do", undo=Undo("do", name="cancel_shipping"))
        .step("notify_user", "do")
    )  # fmt: skip


async def test_basic_saga_runs_its_three_steps(shop: Shop) -> None:
    story = await shop.run(order_saga(shop))
    assert (story.status, shop.log) == ("completed", ["reserve_funds", "ship_order", "notify_user"])


async def test_basic_saga_when_ship_order_fails(shop: Shop) -> None:
    shop.fails = {"ship_order": ALWAYS}
    story = await shop.run(order_saga(shop))
    assert shop.log == ["reserve_funds", "ship_order", "cancel_shipping", "refund_funds"]
    assert (story["ship_order"], story["reserve_funds"], story.status) == ("rolled_back", "rolled_back", "failed")


# --- 14.2 -------------------------------------------------------------------------------------------------------------


def smart_order_saga(shop: Shop) -> Flow:
    restock = Branch().step("restock_item", "do", undo=Undo("do", name="notify_out_of_stock"))
    digital = Branch().condition(
        "check_digital", "input.product_type == 'digital'", Branch().step("prepare_physical", "do")
    )
    return (
        shop.flow()
        .step("validate_order", "do")
        .condition("check_inventory", "input.inventory_count > 0", restock)
        .then("process_payment", "do", undo=Undo("do", name="refund_payment"))
        .fork(
            "fulfillment",
            Branch().step("ship_item", "do", undo=Undo("do", name="cancel_shipment")),
            digital.then("deliver_digital", "do"),
        )
        .join("fulfillment_join", "all")
        .then("notify_completion", "do")
    )  # fmt: skip


def order(shop: Shop, count: int, kind: str) -> dict[str, Any]:
    known = {"inventory_count": count, "product_type": kind}
    shop.answers = {"validate_order": known, "process_payment": known}
    return {}


async def test_smart_saga_without_inventory_restocks_and_ends(shop: Shop) -> None:
    story = await shop.run(smart_order_saga(shop), order(shop, 0, "book"))
    assert (story.status, shop.log) == ("completed", ["validate_order", "restock_item"])


async def test_smart_saga_compensates_the_restock_that_fails(shop: Shop) -> None:
    shop.fails = {"restock_item": ALWAYS}
    story = await shop.run(smart_order_saga(shop), order(shop, 0, "book"))
    assert (story.status, shop.log[-1]) == ("failed", "notify_out_of_stock")


@pytest.mark.parametrize(("kind", "step"), [("digital", "deliver_digital"), ("book", "prepare_physical")])
async def test_smart_saga_fulfils_digital_and_physical_products_differently(shop: Shop, kind: str, step: str) -> None:
    story = await shop.run(smart_order_saga(shop), order(shop, 3, kind))
    assert (story.status, set(shop.data["notify_completion"]["outputs"])) == ("completed", {"ship_item", step})


async def test_smart_saga_only_compensates_executed_branches(shop: Shop) -> None:
    shop.fails = {"notify_completion": ALWAYS}
    story = await shop.run(smart_order_saga(shop), order(shop, 3, "book"))
    assert shop.log[-2:] == ["cancel_shipment", "refund_payment"]
    assert (story["prepare_physical"], "deliver_digital" in story, "restock_item" in story) == (
        "rolled_back",
        False,
        False,
    )
    assert story.status == "failed"
