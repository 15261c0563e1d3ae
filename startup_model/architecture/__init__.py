"""What models are made of: parts of layers with their parameter counts, and the tables that read a config.json."""
