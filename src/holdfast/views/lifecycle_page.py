"""The lifecycle of a machine as a page of HTML."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.store.activities import Activity
from holdfast.store.reads.lifecycle import Lifecycle, LifecycleEntry
from holdfast.views.page import page_of, text_of

LONGEST_VALUE: Final = 20_000  # characters of one payload


def lifecycle_page(found: Lifecycle) -> str:
    """Write the page; equal lifecycles give equal pages."""
    about = found.instance
    title = f"{about.definition} {about.external_ref or about.id}"
    return "".join(page_of(title, _facts(found), _body(found)))


def _body(found: Lifecycle) -> Iterator[str]:
    yield "<h2>Entries</h2>\n"
    if found.truncated:
        yield "<p>Earlier entries are left out.</p>\n"
    yield "<ol>\n"
    for entry in found.entries:
        yield from _entry(entry)
    yield "</ol>\n"
    if found.other_activities:
        yield "<h2>Other activities</h2>\n"
        yield from _activities(found.other_activities, "Activities that belong to no entry")


def _facts(found: Lifecycle) -> Iterator[tuple[str, str]]:
    about = found.instance
    yield "State", text_of(about.current_state or "none yet")
    yield "Status", text_of(about.status)
    if about.last_event:
        yield "Last event", text_of(about.last_event)
    if about.external_ref:
        yield "Reference", text_of(about.external_ref)
    version = f"{about.definition} version {about.definition_version}"
    yield "Definition", text_of(f"{version} ({about.environment})" if about.environment else version)
    yield "Instance", text_of(about.id)
    yield "Created", _moment(about.created_at)
    yield "Modified", _moment(about.modified_at)


def _entry(entry: LifecycleEntry) -> Iterator[str]:
    way = "" if entry.from_state is None else f'{text_of(entry.from_state)} <span aria-label="to">→</span> '
    yield f'<li id="entry-{entry.number}">\n<h3>{way}{text_of(entry.to_state)}</h3>\n<p>'
    if entry.event is not None:
        code = "" if entry.event_code is None else f" ({entry.event_code})"
        yield f"{text_of(entry.event)}{code}"
    else:
        yield "Start"
    yield f"{f' by {text_of(entry.actor)}' if entry.actor else ''}, {_moment(entry.occurred_at)}"
    yield f' <span class="soft">entry {entry.number}</span></p>\n'
    if entry.payload is not None:
        yield f"<pre>{_value(entry.payload)}</pre>\n"
    if entry.activities:
        yield from _activities(entry.activities, "Activities")
    yield "</li>\n"


def _activities(found: list[Activity], caption: str) -> Iterator[str]:
    yield f"<table>\n<caption>{caption}</caption>\n<thead><tr>"
    for name in ("Activity", "Actor", "Status", "Updated", "Data"):
        yield f'<th scope="col">{name}</th>'
    yield "</tr></thead>\n<tbody>\n"
    for each in found:
        status = f"{text_of(each.status)}{' (frozen)' if each.frozen else ''}"
        data = "" if each.data is None else f"<pre>{_value(each.data)}</pre>"
        yield (
            f'<tr><th scope="row">{text_of(each.name)}</th><td>{text_of(each.actor)}</td><td>{status}</td>'
            f"<td>{_moment(each.updated_at)}</td><td>{data}</td></tr>\n"
        )
    yield "</tbody>\n</table>\n"


def _moment(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S} UTC</time>'


def _value(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text_of(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…", lines=True)
