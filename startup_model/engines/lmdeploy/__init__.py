"""LMDeploy: starts are read from its logs."""

from startup_model.engines.engine import Engine

ENGINE = Engine(name="lmdeploy", package=__name__)
