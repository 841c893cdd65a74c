"""Routes for front ends."""
