"""The command line in this process: all of it but the start of an interpreter, which takes most of a second."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from cli_process import surroundings

from holdfast.cli.app import main


def command(*arguments: str, **environment: str) -> CompletedProcess[str]:
    """As `cli_process.command`: what it printed, and how it ended."""
    told, complained = io.StringIO(), io.StringIO()
    words = ["holdfast", *arguments]
    with (
        patch.dict(os.environ, surroundings(environment), clear=True),
        patch.object(sys, "argv", words),
        redirect_stdout(told),
        redirect_stderr(complained),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return CompletedProcess(words, code, told.getvalue(), complained.getvalue())
