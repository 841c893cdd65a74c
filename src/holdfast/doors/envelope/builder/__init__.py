"""Write contracts and patches in Python, one verb after another."""
