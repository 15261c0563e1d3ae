"""Text Generation Inference: starts are read from its logs."""

from startup_model.engines.engine import Engine

ENGINE = Engine(name="tgi", package=__name__)
