"""`holdfast contracts new`: a template to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.runtime.envelopes.templates import read_template, template_names


def new(
    template: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(template_names())}.")
    ] = "invoice_approval",
) -> None:
    """Print a file with a contract and a patch to begin with."""
    print(read_template(template), end="")
