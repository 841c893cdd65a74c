"""Routes of contracts of documents."""
