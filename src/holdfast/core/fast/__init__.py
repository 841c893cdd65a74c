"""Fast paths: the plain decisions, made without the kernel's machinery and with the same outcome."""
