"""`holdfast contracts new`: a template to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.render.output import show_text
from holdfast.runtime.envelopes.templates import read_template, template_names


def new(
    template: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(template_names())}.")
    ] = "invoice_approval",
) -> None:
    """Print a file with a contract and a patch to begin with."""
    show_text(read_template(template).rstrip("\n"))
