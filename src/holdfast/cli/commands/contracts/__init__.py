"""The commands of contracts."""
