"""Replay: step rows folded back into the instance they describe."""
