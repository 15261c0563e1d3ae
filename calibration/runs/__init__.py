"""Runs that were measured: records, and the files that hold them."""
