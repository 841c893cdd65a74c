"""The fault harness: kills, freezes, crashes and lost answers, judged by a witness that is not the engine."""
