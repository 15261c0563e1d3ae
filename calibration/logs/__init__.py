"""Start-up logs: lines -> events -> starts -> records. One table of line templates per engine; see ``tables``."""
