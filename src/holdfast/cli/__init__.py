"""The command line: `holdfast`, or `python -m holdfast.cli`."""

from holdfast.cli.app import main

__all__ = ["main"]
