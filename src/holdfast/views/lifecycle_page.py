"""The lifecycle of a machine as a page of HTML in one file, to be opened, printed, sent along.

It loads nothing and runs nothing, and says so to the browser. Every value is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

import msgspec

from holdfast.printable import printable, printable_lines
from holdfast.store.activities import Activity
from holdfast.store.reads.lifecycle import Lifecycle, LifecycleEntry

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LONGEST_VALUE: Final = 20_000  # characters of one payload

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --back: #fff; --box: #f6f8fa;
  --mark: #0a5cc2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9da7b3; --line: #3d444d; --back: #0d1117; --box: #151b23; --mark: #79b8ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--back); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .75rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; }
ol { list-style: none; margin: 0; padding: 0; border-left: 2px solid var(--line); }
ol > li { position: relative; padding: 0 0 1.25rem 1.25rem; }
ol > li::before { content: ""; position: absolute; left: -.45rem; top: .45rem; width: .75rem; height: .75rem;
  border-radius: 50%; background: var(--mark); border: 2px solid var(--back); }
h3 { font-size: 1rem; margin: 0; } p { margin: .1rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; font-size: .9rem; }
caption { text-align: left; color: var(--soft); } th, td { text-align: left; vertical-align: top;
  padding: .3rem .5rem; border: 1px solid var(--line); } th { background: var(--box); font-weight: 600; }
pre { margin: .4rem 0 0; padding: .5rem .75rem; background: var(--box); border: 1px solid var(--line);
  border-radius: 4px; white-space: pre-wrap; font: .85rem/1.4 ui-monospace, monospace; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #333; --line: #999; --back: #fff; --box: #fff; --mark: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; } li, tr { break-inside: avoid; }
}
"""


def lifecycle_page(found: Lifecycle) -> str:
    """Write the page; equal lifecycles give equal pages."""
    return "".join(_page(found))


def _page(found: Lifecycle) -> Iterator[str]:
    about = found.instance
    title = f"{about.definition} {about.external_ref or about.id}"
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<header>\n<h1>{_text(title)}</h1>\n<dl>\n"
    )
    for name, value in _facts(found):
        yield f"<dt>{name}</dt><dd>{value}</dd>\n"
    yield "</dl>\n</header>\n<main>\n<h2>Entries</h2>\n"
    if found.truncated:
        yield "<p>Earlier entries are left out.</p>\n"
    yield "<ol>\n"
    for entry in found.entries:
        yield from _entry(entry)
    yield "</ol>\n"
    if found.other_activities:
        yield "<h2>Other activities</h2>\n"
        yield from _activities(found.other_activities, "Activities that belong to no entry")
    yield "</main>\n</body>\n</html>\n"


def _facts(found: Lifecycle) -> Iterator[tuple[str, str]]:
    about = found.instance
    yield "State", _text(about.current_state or "none yet")
    yield "Status", _text(about.status)
    if about.last_event:
        yield "Last event", _text(about.last_event)
    if about.external_ref:
        yield "Reference", _text(about.external_ref)
    version = f"{about.definition} version {about.definition_version}"
    yield "Definition", _text(f"{version} ({about.environment})" if about.environment else version)
    yield "Instance", _text(about.id)
    yield "Created", _moment(about.created_at)
    yield "Modified", _moment(about.modified_at)


def _entry(entry: LifecycleEntry) -> Iterator[str]:
    way = "" if entry.from_state is None else f'{_text(entry.from_state)} <span aria-label="to">→</span> '
    yield f'<li id="entry-{entry.number}">\n<h3>{way}{_text(entry.to_state)}</h3>\n<p>'
    if entry.event is not None:
        code = "" if entry.event_code is None else f" ({entry.event_code})"
        yield f"{_text(entry.event)}{code}"
    else:
        yield "Start"
    yield f"{f' by {_text(entry.actor)}' if entry.actor else ''}, {_moment(entry.occurred_at)}"
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
        status = f"{_text(each.status)}{' (frozen)' if each.frozen else ''}"
        data = "" if each.data is None else f"<pre>{_value(each.data)}</pre>"
        yield (
            f'<tr><th scope="row">{_text(each.name)}</th><td>{_text(each.actor)}</td><td>{status}</td>'
            f"<td>{_moment(each.updated_at)}</td><td>{data}</td></tr>\n"
        )
    yield "</tbody>\n</table>\n"


def _moment(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S} UTC</time>'


def _value(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _text(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…", lines=True)


def _text(text: str, *, lines: bool = False) -> str:
    """Escape a text, with unseen characters and marks of direction written out."""
    return escape(printable_lines(text) if lines else printable(text))
