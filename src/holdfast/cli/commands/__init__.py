"""The commands, one noun or verb per module."""
