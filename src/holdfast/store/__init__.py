"""The only package that speaks to PostgreSQL."""
