"""What a person writes, as plain values: nothing here knows the kernel."""
