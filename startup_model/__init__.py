"""Analytical cold-start prediction for LLM inference servers: from a model's config.json and a node to start-up seconds.

Names are imported on first use, so that ``import startup_model`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "ConfigError",
    "EngineConfig",
    "HardwareConfig",
    "InputFileError",
    "ModelConfig",
    "Phase",
    "Profile",
    "ProfileError",
    "StartupModelError",
    "StartupPrediction",
    "Sweep",
    "UnknownNameError",
    "predict",
    "sensitivity",
    "sweep",
    "what_if",
]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from startup_model.compare import sensitivity, what_if
    from startup_model.engines.config import EngineConfig
    from startup_model.errors import ConfigError, InputFileError, ProfileError, StartupModelError, UnknownNameError
    from startup_model.hardware import HardwareConfig
    from startup_model.models.config import ModelConfig
    from startup_model.phases import Phase
    from startup_model.prediction import StartupPrediction
    from startup_model.predictor import predict
    from startup_model.profile import Profile
    from startup_model.sweeps import Sweep, sweep

_HOMES = {
    "EngineConfig": "engines.config",
    "HardwareConfig": "hardware",
    "ModelConfig": "models.config",
    "ConfigError": "errors",
    "InputFileError": "errors",
    "ProfileError": "errors",
    "StartupModelError": "errors",
    "UnknownNameError": "errors",
    "Sweep": "sweeps",
    "sweep": "sweeps",
    "sensitivity": "compare",
    "what_if": "compare",
    "predict": "predictor",
    "Phase": "phases",
    "StartupPrediction": "prediction",
    "Profile": "profile",
}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
