"""The processes that the command runs: workers, servers, their supervisor."""
