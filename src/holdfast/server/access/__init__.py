"""Access: who a caller is, what they may see and do."""
