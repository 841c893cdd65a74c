"""Pages of HTML in one file, to be opened, printed, sent along: their head, their looks, and text within them.

A page loads nothing and runs nothing, and says so to the browser. Every value is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from holdfast.printable import printable, printable_lines

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
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


def page_of(title: str, facts: Iterable[tuple[str, str]], body: Iterable[str], style: str = "") -> Iterator[str]:
    """Write a page with a title, facts below it, and a body. The facts and the body are HTML, the title is text."""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text_of(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n<header>\n<h1>{text_of(title)}</h1>\n<dl>\n"
    )
    for name, value in facts:
        yield f"<dt>{name}</dt><dd>{value}</dd>\n"
    yield "</dl>\n</header>\n<main>\n"
    yield from body
    yield "</main>\n</body>\n</html>\n"


def text_of(text: str, *, lines: bool = False) -> str:
    """Escape a text, with unseen characters and marks of direction written out."""
    return escape(printable_lines(text) if lines else printable(text))
