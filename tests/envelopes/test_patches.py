"""Patches in the database: drafts, versions, who did what, and two who do it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from document_office import approved_by, broken, invoice, without_review
from msgspec.structs import replace

from holdfast import Engine
from holdfast.doors.envelope.effective import compile_effective
from holdfast.errors import Conflict, DefinitionError, HoldfastError, NotFound

pytestmark = pytest.mark.anyio


async def refusal(attempt: Awaitable[object]) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        await attempt
    assert caught.value.hint
    return caught.value


@pytest.fixture
async def office(engine: Engine) -> Engine:
    await engine.publish_contract(invoice(), by="vendor")
    return engine


async def put_in_force(engine: Engine, role: str, envelope: int = 1) -> int:
    await engine.save_patch_draft(approved_by(role, envelope), by="ann")
    return (await engine.publish_patch("invoice", by="ann")).version


# --- drafts -----------------------------------------------------------------------------------------------------------


async def test_a_draft_comes_back_with_its_author(office: Engine) -> None:
    saved = await office.save_patch_draft(approved_by("finance"), by="ann", reason="four eyes")
    assert saved == await office.patch_draft("invoice")
    assert (saved.patch, saved.by, saved.reason) == (approved_by("finance"), "ann", "four eyes")


async def test_a_draft_may_be_wrong_and_is_not_published(office: Engine) -> None:
    await office.save_patch_draft(broken(), by="ann")
    found = await office.check_patch("invoice")
    assert {finding.code for finding in found} >= {"SLOT_UNKNOWN", "PATCH_EXPRESSION_INVALID"}
    assert all(finding.place.startswith("slots.") and finding.hint for finding in found)
    refused = await refusal(office.publish_patch("invoice", by="ann"))
    assert isinstance(refused, DefinitionError)
    assert set(refused.diagnostics) == set(found)
    assert await office.patches("invoice") == []
    assert (await office.effective("invoice")).is_default
    assert (await office.patch_draft("invoice")).patch == broken()


async def test_who_has_not_seen_the_newest_draft_does_not_write_over_it(office: Engine) -> None:
    first = await office.save_patch_draft(approved_by("finance"), by="ann")
    second = await office.save_patch_draft(approved_by("board"), by="ben", etag=first.etag)
    assert second.etag != first.etag
    for attempt in (
        office.save_patch_draft(approved_by("nobody"), by="ann", etag=first.etag),
        office.drop_patch_draft("invoice", by="ann", etag=first.etag),
        office.publish_patch("invoice", by="ann", etag=first.etag),
    ):
        refused = await refusal(attempt)
        assert isinstance(refused, Conflict)
        assert refused.code == "DRAFT_CHANGED"
    assert await office.patch_draft("invoice") == second


async def test_a_tag_of_a_draft_that_is_gone_saves_nothing(office: Engine) -> None:
    saved = await office.save_patch_draft(approved_by("finance"), by="ann")
    await office.drop_patch_draft("invoice", by="ben", reason="not needed")
    assert (await refusal(office.save_patch_draft(approved_by("x"), by="ann", etag=saved.etag))).code == "DRAFT_CHANGED"
    assert (await refusal(office.patch_draft("invoice"))).code == "DRAFT_UNKNOWN"


async def test_two_save_over_the_same_draft_at_once_and_one_wins(office: Engine) -> None:
    seen = (await office.save_patch_draft(approved_by("finance"), by="ann")).etag
    saves = [office.save_patch_draft(approved_by(f"r{n}"), by=f"p{n}", etag=seen) for n in range(6)]
    done = await asyncio.gather(*saves, return_exceptions=True)
    assert [one.code for one in done if isinstance(one, Conflict)] == ["DRAFT_CHANGED"] * 5


async def test_checking_a_patch_stores_nothing(office: Engine) -> None:
    assert await office.check_patch(approved_by("finance")) == ()
    assert await office.check_patch(broken())
    assert (await refusal(office.patch_draft("invoice"))).code == "DRAFT_UNKNOWN"
    assert [event.action for event in await office.contract_events("invoice")] == ["contract_published"]


async def test_a_version_of_the_contract_that_is_not_there_is_a_finding(office: Engine) -> None:
    [found] = await office.check_patch(approved_by("finance", envelope=9))
    assert (found.code, found.place) == ("PATCH_BASE_UNKNOWN", "envelope")
    foreign = await refusal(office.check_patch(approved_by("finance", type="order")))
    assert foreign.code == "CONTRACT_UNKNOWN"


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_a_published_patch_is_in_force_and_its_draft_is_gone(office: Engine) -> None:
    await office.save_patch_draft(approved_by("finance"), by="ann")
    done = await office.publish_patch("invoice", by="ben", reason="audit")
    graph = await office.effective("invoice")
    patch = replace(approved_by("finance"), version=done.version)
    assert not graph.is_default
    assert (graph.version, graph.envelope) == (done.version, 1)
    assert graph.graph == compile_effective(invoice(), patch)
    assert graph.hash == done.graph_hash
    assert (await office.patch("invoice")).patch == patch
    assert (await refusal(office.patch_draft("invoice"))).code == "DRAFT_UNKNOWN"
    assert (await refusal(office.publish_patch("invoice", by="ann"))).code == "DRAFT_GONE"


async def test_two_publish_at_once_and_one_is_told(office: Engine) -> None:
    draft = await office.save_patch_draft(approved_by("finance"), by="ann")
    attempts = [office.publish_patch("invoice", by=f"p{n}", etag=draft.etag) for n in range(5)]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    assert [one.code for one in done if isinstance(one, Conflict)] == ["DRAFT_CHANGED"] * 4
    assert len(await office.patches("invoice")) == 1


async def test_two_publish_at_once_without_having_seen_it(office: Engine) -> None:
    await office.save_patch_draft(approved_by("finance"), by="ann")
    attempts = [office.publish_patch("invoice", by=f"p{n}") for n in range(5)]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    codes = {one.code for one in done if isinstance(one, Conflict)}
    assert codes <= {"DRAFT_CHANGED", "DRAFT_GONE"}
    assert sum(isinstance(one, Conflict) for one in done) == 4
    assert len(await office.patches("invoice")) == 1


async def test_restores_at_once_each_get_a_number(office: Engine) -> None:
    first = await put_in_force(office, "finance")
    done = await asyncio.gather(*(office.restore_patch("invoice", first, by="ann") for _ in range(5)))
    assert sorted(one.version for one in done) == list(range(first + 1, first + 6))
    assert len(await office.patches("invoice")) == 6


async def test_an_old_version_is_restored_as_a_new_one(office: Engine) -> None:
    first = await put_in_force(office, "finance")
    second = await put_in_force(office, "board")
    done = await office.restore_patch("invoice", first, by="ben", reason="too slow")
    assert done.version > second
    newest = await office.patch("invoice")
    assert newest.version == done.version
    assert newest.patch.slots == approved_by("finance").slots
    assert newest.hash == (await office.patch("invoice", first)).hash


async def test_what_is_archived_is_not_in_force(office: Engine) -> None:
    first = await put_in_force(office, "finance")
    second = await put_in_force(office, "board")
    await office.archive_patch("invoice", second, by="ben", reason="mistake")
    assert (await office.effective("invoice")).version == first
    await office.archive_patch("invoice", first, by="ben")
    assert (await office.effective("invoice")).is_default
    assert [one.status for one in await office.patches("invoice")] == ["archived", "archived"]
    assert (await office.effective("invoice", second)).status == "archived"
    assert (await refusal(office.archive_patch("invoice", first, by="ben"))).code == "PATCH_ARCHIVED"
    assert (await refusal(office.archive_patch("invoice", 99, by="ben"))).code == "PATCH_UNKNOWN"


async def test_patches_are_paged_newest_first(office: Engine) -> None:
    numbers = [await put_in_force(office, role) for role in ("a", "b", "c")]
    page = await office.patches("invoice", limit=2)
    assert [one.version for one in page] == numbers[:0:-1]
    assert [one.version for one in await office.patches("invoice", before=page[-1].version)] == numbers[:1]


async def test_organisations_have_patches_of_their_own(office: Engine) -> None:
    await office.for_org("_system").publish_contract(invoice(type="order"), by="vendor")
    acme, globex = office.for_org("acme"), office.for_org("globex")
    await acme.save_patch_draft(approved_by("finance", type="order"), by="ann")
    for attempt in (globex.patch_draft("order"), globex.patch("order")):
        assert isinstance(await refusal(attempt), NotFound)
    done = await acme.publish_patch("order", by="ann")
    assert done.version == 1
    assert await globex.patches("order") == []
    assert (await globex.effective("order")).is_default
    assert not (await acme.effective("order")).is_default


async def test_everything_is_written_down(office: Engine) -> None:
    await office.save_patch_draft(approved_by("finance"), by="ann", reason="try")
    first = (await office.publish_patch("invoice", by="ben", reason="agreed")).version
    second = (await office.restore_patch("invoice", first, by="cleo", reason="again")).version
    await office.archive_patch("invoice", second, by="dora", reason="wrong")
    await office.save_patch_draft(approved_by("board"), by="eve")
    await office.drop_patch_draft("invoice", by="eve", reason="later")
    events = await office.contract_events("invoice")
    assert [(one.action, one.by, one.reason, one.version, one.origin) for one in reversed(events)] == [
        ("contract_published", "vendor", None, 1, None),
        ("draft_saved", "ann", "try", None, None),
        ("patch_published", "ben", "agreed", first, None),
        ("patch_restored", "cleo", "again", second, first),
        ("patch_archived", "dora", "wrong", second, None),
        ("draft_saved", "eve", None, None, None),
        ("draft_dropped", "eve", "later", None, None),
    ]
    page = await office.contract_events("invoice", limit=3)
    assert page + await office.contract_events("invoice", before=page[-1].id) == events


# --- another version of the contract ----------------------------------------------------------------------------------


@pytest.fixture
async def three(engine: Engine) -> Engine:
    """A contract for all; two organisations have patches, and a third one has none."""
    await engine.for_org("_system").publish_contract(invoice(1), by="vendor")
    for org in ("acme", "globex"):
        await put_in_force(engine.for_org(org), "finance")
    return engine


async def test_a_dry_run_tells_whose_patches_do_not_fit_and_changes_nothing(three: Engine) -> None:
    await three.for_org("_system").publish_contract(without_review(2), by="vendor")
    told = await three.rebase("invoice", 2, by="vendor", dry_run=True, all_orgs=True)
    assert [(one.org, one.status, one.envelope) for one in told] == [("acme", "misfit", 1), ("globex", "misfit", 1)]
    for one in told:
        assert ("SLOT_UNKNOWN", "slots.review") in {(found.code, found.place) for found in one.findings}
    assert [one.envelope for one in await three.for_org("acme").patches("invoice")] == [1]


async def test_patches_that_fit_are_published_each_on_its_own(three: Engine) -> None:
    await three.for_org("_system").publish_contract(invoice(2, approvals=1), by="vendor")
    dry = await three.rebase("invoice", by="vendor", dry_run=True, all_orgs=True)
    assert [one.status for one in dry] == ["fits", "fits"]
    await three.for_org("globex").archive_patch("invoice", 1, by="ann")
    told = await three.rebase("invoice", by="vendor", reason="new law", all_orgs=True)
    assert [(one.org, one.status, one.version, one.published) for one in told] == [("acme", "published", 1, 2)]
    acme = three.for_org("acme")
    assert (await acme.patch("invoice")).envelope == 2
    assert (await acme.effective("invoice")).envelope == 2
    [event, *_] = await acme.contract_events("invoice")
    assert (event.action, event.by, event.reason, event.origin) == ("patch_rebased", "vendor", "new law", 1)
    again = await acme.rebase("invoice", by="ann")
    assert [one.status for one in again] == ["current"]


async def test_one_that_does_not_fit_stops_no_other(three: Engine) -> None:
    acme = three.for_org("acme")
    empty = replace(approved_by("finance"), slots={})
    await acme.save_patch_draft(empty, by="ann")
    await acme.publish_patch("invoice", by="ann")
    await three.for_org("_system").publish_contract(invoice(2, approvals=1), by="vendor")
    told = {one.org: one for one in await three.rebase("invoice", by="vendor", all_orgs=True)}
    assert told["acme"].status == "misfit"
    assert told["globex"].status == "published"
    assert {found.code for found in told["acme"].findings} == {"GATE_UNDERAPPROVED"}
    assert (await acme.effective("invoice")).envelope == 1


async def test_without_a_patch_there_is_nothing_to_rebase(three: Engine) -> None:
    assert await three.for_org("initech").rebase("invoice", by="ann") == []
    assert (await refusal(three.for_org("acme").rebase("invoice", 9, by="ann"))).code == "VERSION_UNKNOWN"
