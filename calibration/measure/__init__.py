"""Profile real servers: start one, follow it to its first token, stop it, keep the record."""
