"""PostgreSQL: connections, sessions, transactions, statements and the wire format."""
