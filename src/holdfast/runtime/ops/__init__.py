"""Operations: dead letters, migration, re-run, rebuild, stuck instances, upkeep."""
