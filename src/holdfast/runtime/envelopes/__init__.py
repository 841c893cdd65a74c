"""Contracts and patches at work: publishing, drafts, rebases, and the simulation of an effective graph."""
