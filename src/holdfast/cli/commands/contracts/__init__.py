"""The commands of contracts and patches."""
