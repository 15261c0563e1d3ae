"""StartupRegressor: the fit behind scikit-learn's interface."""

from __future__ import annotations

import pickle
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_predict, cross_val_score
from sklearn.utils import estimator_checks

from calibration import RunRecord, StartupRegressor, cross_validate, fit_profile
from calibration.runs.published import published_runs
from startup_model import ConfigError, HardwareConfig, StartupModelError, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = pd.read_csv(str(files("calibration").joinpath("data/published_runs.csv")))
FRAME = TABLE[TABLE.dataset == "l40s_hot"].drop(columns="wall_s").reset_index(drop=True)
WALL = TABLE[TABLE.dataset == "l40s_hot"].wall_s.to_numpy()
RUNS = [run for run in published_runs() if run.dataset == "l40s_hot"]


@pytest.fixture(scope="module")
def fitted() -> StartupRegressor:
    return StartupRegressor("none").fit(FRAME, WALL)


def test_a_frame_and_records_give_the_same_fit(fitted: StartupRegressor) -> None:
    by_records = StartupRegressor("none").fit(RUNS)
    assert by_records.profile_.values == fitted.profile_.values
    np.testing.assert_allclose(by_records.predict(RUNS), fitted.predict(FRAME), rtol=1e-9)
    profile = fit_profile(RUNS, "none", held_out=False).without_model_effects()
    direct = [predict(run.model, run.hardware, run.engine, profile=profile).total_s for run in RUNS]
    np.testing.assert_allclose(fitted.predict(FRAME), direct, rtol=1e-9)
    assert fitted.score(FRAME, WALL) == pytest.approx(by_records.score(RUNS))
    assert fitted.score(FRAME, WALL) > 0.97
    assert list(fitted.feature_names_in_) == list(FRAME.columns)
    assert fitted.report_.runs_used == len(RUNS)


def test_model_selection_works_on_frames_and_on_records() -> None:
    """One model left out at a time gives the errors of cross_validate."""
    model, groups = StartupRegressor("none"), FRAME.model
    predicted = cross_val_predict(model, FRAME, WALL, groups=groups, cv=LeaveOneGroupOut())
    errors = {row.group: row.error for row in cross_validate(RUNS, prior="none").rows}
    np.testing.assert_allclose(predicted / WALL - 1.0, [errors[name] for name in FRAME.model], atol=1e-9)
    scores = cross_val_score(model, RUNS, WALL, cv=3, scoring="neg_mean_absolute_percentage_error")
    assert np.all(scores > -0.05)


def test_a_search_over_priors() -> None:
    search = GridSearchCV(StartupRegressor(), {"prior": ["none", "h100-nvl-epyc-9354"]}, cv=2, error_score="raise")
    search.fit(FRAME, WALL)
    assert search.best_params_["prior"] in ("none", "h100-nvl-epyc-9354")
    assert search.best_estimator_.score(FRAME, WALL) > 0.97


def test_importances_of_columns(fitted: StartupRegressor) -> None:
    """What was started decides its time; the phases that the fit has used and the session say nothing more."""
    found = permutation_importance(fitted, FRAME[["model", "dataset", "host", "engine_version", "weight_load", "captures", "page_cache", "torch_compile"]], WALL, n_repeats=3, random_state=1)  # fmt: skip
    assert found.importances_mean[0] > 0.5
    assert found.importances_mean[1] == found.importances_mean[4] == 0.0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((3, 2)), "must be a pandas DataFrame or a list of RunRecords"),
        ("runs.csv", "must be a pandas DataFrame"),
        (FRAME.assign(model="falcon-7"), "X, row 0: model = 'falcon-7'"),
        (FRAME.rename(columns={"page_cache": "page_cahe"}), "did you mean 'page_cache'"),
        (FRAME.assign(weight_load=-1.0), "X, row 0: weight_load"),
    ],
)
def test_what_is_no_start_is_said(rows: Any, words: str) -> None:
    with pytest.raises(StartupModelError) as error:
        StartupRegressor("none").fit(rows, np.full(len(rows), 20.0))
    assert words in str(error.value)
    with pytest.raises(ConfigError, match="3 values"):
        StartupRegressor().fit(FRAME, [1.0, 2.0, 3.0])


def test_a_node_stands_where_the_frame_names_none() -> None:
    node = HardwareConfig.preset("l40s")
    frame = pd.DataFrame({"model": ["Qwen/Qwen3-8B", "Qwen/Qwen2.5-14B"], "page_cache": "hot"})
    model = StartupRegressor(hardware=node).fit(frame, [25.0, 32.0])
    np.testing.assert_allclose(model.predict(frame), [25.0, 32.0], rtol=0.1)


# --- scikit-learn's own checks ------------------------------------------------------------------------------------------

BY_NAME = (
    "check_parameters_default_constructible",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_non_transformer_estimators_n_iter",
)
"""Checks that need no data, or none that is a start.

The others call fit with random arrays: they hold for numbers, not for starts, and do not apply. What they are after is asked below with frames of
starts: unfitted, fit returns itself, nothing that was given is changed, pickling, the same again, order and subsets of rows. Not asked: sample
weights, sparse, complex or boolean arrays, several outputs, classes and clusters, which a start does not have; NaN is a cell that was not measured.
"""


@pytest.mark.parametrize("name", BY_NAME)
def test_checks_of_scikit_learn(name: str) -> None:
    check = getattr(estimator_checks, name)
    check("StartupRegressor", StartupRegressor())


def test_what_its_other_checks_ask_holds_for_frames(fitted: StartupRegressor) -> None:
    with pytest.raises(NotFittedError):
        StartupRegressor().predict(FRAME)
    model = StartupRegressor("none", model_effects=False)
    before, parameters = FRAME.copy(), model.get_params()
    assert model.fit(FRAME, WALL) is model
    attributes = dict(vars(model))
    once = model.predict(FRAME)
    pd.testing.assert_frame_equal(FRAME, before)
    assert model.get_params() == parameters
    assert vars(model) == attributes
    assert all(name.endswith("_") for name in attributes.keys() - parameters.keys())
    np.testing.assert_array_equal(model.fit(FRAME, WALL).predict(FRAME), once)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(FRAME), once)  # noqa: S301  our own bytes
    np.testing.assert_array_equal(model.predict(FRAME.iloc[::-1])[::-1], once)
    np.testing.assert_array_equal(np.concatenate([model.predict(FRAME.iloc[i : i + 1]) for i in range(3)]), once[:3])
    assert not hasattr(clone(model), "profile_")
    with pytest.raises(StartupModelError):
        StartupRegressor().fit(FRAME.iloc[:0], [])
    assert once.shape == (len(FRAME),)
    np.testing.assert_array_equal(fitted.predict(FRAME), once)


def records(rows: Sequence[int]) -> list[RunRecord]:
    return [RUNS[i] for i in rows]


def test_remembered_models_are_used_on_request() -> None:
    """Off, a prior that knows the very model says nothing about it."""
    kept = StartupRegressor("l40s-epyc-9354", model_effects=True).fit(records(range(3)))
    plain = StartupRegressor("l40s-epyc-9354").fit(records(range(3)))
    assert kept.profile_.model_effects
    assert not plain.profile_.model_effects
    assert not np.allclose(kept.predict(RUNS), plain.predict(RUNS), rtol=1e-3)
