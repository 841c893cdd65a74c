"""What a test suite needs: databases that cost milliseconds and a clock that can be moved."""
