"""The fit: from runs to the profile of a host."""
