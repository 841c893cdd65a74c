"""Contracts and patches at work: publishing them, drafts, another contract under the patches there are."""
