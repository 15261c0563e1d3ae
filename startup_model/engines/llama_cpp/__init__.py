"""llama.cpp: starts are read from its logs."""

from startup_model.engines.engine import Engine

ENGINE = Engine(name="llama.cpp", package=__name__)
