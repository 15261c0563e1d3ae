"""Models: from a config.json to layers and parameters."""
