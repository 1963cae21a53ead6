"""A store in PostgreSQL, for several gateways on several machines that share keys, caps and sessions."""
