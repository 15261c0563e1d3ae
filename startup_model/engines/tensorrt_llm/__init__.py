"""TensorRT-LLM: starts are read from its logs."""

from startup_model.engines.engine import Engine

ENGINE = Engine(name="tensorrt-llm", package=__name__)
