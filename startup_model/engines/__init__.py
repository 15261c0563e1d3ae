"""Engines: a folder each, with all that start-up knows of it."""
