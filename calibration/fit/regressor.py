"""The fit as an estimator of scikit-learn's interface, for its cross-validation, searches and importances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from calibration.fit.calibrate import calibrate
from calibration.runs.build import Builder, Given
from calibration.runs.record import RunRecord
from calibration.runs.table import frame_rows, row_record, row_start
from startup_model.engines.config import EngineConfig
from startup_model.errors import StartupModelError, conflict, wrong_type
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import (
    EngineLike,
    HardwareLike,
    ModelLike,
    ProfileLike,
    as_engine,
    as_hardware,
    as_model,
    predict,
)

Row = dict[str, str] | RunRecord


class StartupRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Seconds to ready from runs: ``calibrate`` and ``predict`` behind fit, predict and score.

    X is a pandas DataFrame in the columns of run tables (model, gpu, engine_version, page_cache, wall_s ...), or a list of RunRecords; y the seconds
    from process start to ready. Columns of seconds of phases, where X has them, are used by fit and not by predict.

    prior: as in ``calibrate``. hardware, model, engine: stand where a frame does not say. allow_mixed_hosts: as in ``calibrate``.
    model_effects: whether predictions use what the prior remembers of models that it has measured; off, so that a score says how good
    predictions of new models are. After fit: ``profile_``, ``report_``, ``n_features_in_`` and ``feature_names_in_`` of a frame.
    """

    def __init__(
        self,
        prior: ProfileLike | Literal["none"] | None = None,
        *,
        hardware: HardwareLike | None = None,
        model: ModelLike | None = None,
        engine: EngineLike | None = None,
        allow_mixed_hosts: bool = False,
        model_effects: bool = False,
    ) -> None:
        self.prior = prior
        self.hardware = hardware
        self.model = model
        self.engine = engine
        self.allow_mixed_hosts = allow_mixed_hosts
        self.model_effects = model_effects

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Fit a profile. y: None for runs that hold their wall times. Raises ConfigError or ProfileError, as ``calibrate``."""
        rows = _rows(X)
        seconds = [None] * len(rows) if y is None else np.asarray(y, dtype=float).ravel().tolist()
        if len(seconds) != len(rows):
            raise conflict("y", f"{len(seconds)} values", f"X, which has {len(rows)} rows", "give one of each")
        builder = self._builder()
        runs = [_run(i, row, wall, builder) for i, (row, wall) in enumerate(zip(rows, seconds, strict=True))]
        done = calibrate(runs, self.prior, allow_mixed_hosts=self.allow_mixed_hosts, held_out=False)
        self.profile_ = done.profile if self.model_effects else done.profile.without_model_effects()
        self.report_ = done.report
        self.n_features_in_ = len(X.columns) if hasattr(X, "columns") else 1
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray([str(name) for name in X.columns], dtype=object)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Seconds to ready of each row [s]. Raises NotFittedError before fit, ConfigError for a row that is no start."""
        check_is_fitted(self)
        builder = self._builder()
        starts = [_start(i, row, builder) for i, row in enumerate(_rows(X))]
        return np.array([predict(*start, profile=self.profile_).total_s for start in starts])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """R² of the predictions. y: None for runs that hold their wall times."""
        seconds = [run.ready_s for run in _rows(X)] if y is None else y  # type: ignore[union-attr]
        return float(super().score(X, seconds, sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Starts instead of numbers: an array of two dimensions is no input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def _builder(self) -> Builder:
        given = Given(
            None if self.model is None else as_model(self.model),
            None if self.hardware is None else as_hardware(self.hardware),
            None if self.engine is None else as_engine(self.engine),
        )
        return Builder(given, Path())


def _rows(found: Any) -> Sequence[Row]:
    """The rows of a frame, or a list of records. Raises ConfigError."""
    if hasattr(found, "columns") and hasattr(found, "itertuples"):
        return frame_rows(found)
    rows: list[Any] = list(found) if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str) else [None]
    if not all(isinstance(row, RunRecord) for row in rows):
        remedy = "give columns such as model, gpu and page_cache, or what read_runs(path) returns"
        raise wrong_type("X", type(found).__name__, "a pandas DataFrame or a list of RunRecords", remedy)
    return rows


def _run(index: int, row: Row, seconds: float | None, builder: Builder) -> RunRecord:
    """A row as a record, with ``seconds`` as its wall time where they are given."""
    try:
        if isinstance(row, RunRecord):
            is_told = seconds is None or seconds == row.ready_s
            return row if is_told else row.replace(wall_s=seconds, measured_from="process_start")
        return row_record(row if seconds is None else row | {"wall_s": repr(seconds)}, builder).run
    except StartupModelError as error:
        raise StartupModelError(f"X, row {index}: {error}") from None


def _start(index: int, row: Row, builder: Builder) -> tuple[ModelConfig, HardwareConfig, EngineConfig]:
    try:
        return (row.model, row.hardware, row.engine) if isinstance(row, RunRecord) else row_start(row, builder)
    except StartupModelError as error:
        raise StartupModelError(f"X, row {index}: {error}") from None
