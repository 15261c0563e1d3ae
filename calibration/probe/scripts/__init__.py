"""Scripts of their own, run in the Python of an engine."""
