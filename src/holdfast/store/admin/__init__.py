"""Administration: schema, upkeep, repair and diagnosis over a connection of its own."""
