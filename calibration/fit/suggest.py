"""What to profile next: the runs that would narrow predictions most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibration.fit.posterior import Matrix, Posterior, deviation_width, group_of, scale_width
from calibration.fit.rows import ABSOLUTE_SCATTER, RELATIVE_SCATTER, Key, Part, Vector, keys_of, parts_of
from startup_model.errors import ConfigError
from startup_model.models.config import ModelConfig
from startup_model.predictor import predict
from startup_model.profile import Profile

if TYPE_CHECKING:
    from calibration.fit.calibrate import Calibration

CANDIDATES = (
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.2-3B",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-70B",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V2-Lite",
)
"""Models of many sizes and makes: what a next run could be of, and what predictions should be good for."""


class RunSuggestion(NamedTuple):
    """A run that would narrow the interval, and by how much."""

    model: str
    page_cache: str
    compile_cache: str
    spread_now: float
    """Relative standard deviation of totals from what the fit does not know, on average over models that fit the node."""
    spread_then: float
    """The same once the run has been made."""


def suggest_runs(done: Calibration, most: int = 3) -> tuple[RunSuggestion, ...]:
    """The runs that would narrow intervals most, the best first; none after a fit without a prior, which would say what is not known.

    A run with rows J adds J'J to the precision; what counts is the mean of g' (precision + J'J)^-1 g over targets, g the derivative of the
    logarithm of a target's total.
    """
    fitted, prior = done.fitted, done.prior
    if fitted is None or prior is None or fitted.posterior is None:
        return ()
    hardware, base = done.runs[0].hardware, done.runs[0].engine
    starts = []
    for name, page, cache in product(CANDIDATES, ("hot", "cold"), ("warm", "cold")):
        model = ModelConfig.from_catalogue(name)
        engine = base.replace(page_cache=page, compile_cache=cache, quantization=None, load_format="auto")
        try:
            fits = predict(model, hardware, engine, profile=done.profile).memory.fits
        except ConfigError:
            continue
        if fits:
            starts.append((name, page, cache, parts_of(model, hardware, engine, prior, done.profile.host)))
    if not starts:
        return ()
    touched = (key for *_, parts in starts for found in parts.values() for key in keys_of(found))
    known = _widened(fitted.posterior, fitted.values, prior, touched)
    effects = [_sensitivity(parts, fitted.values, prior, known) for *_, parts in starts]
    targets = np.stack([rows.sum(axis=0) / total for rows, _, total in effects])

    def spread(covariance: Matrix) -> float:
        return float(np.sqrt(np.mean(np.einsum("ti,ij,tj->t", targets, covariance, targets))))

    now, precision = spread(known.covariance), np.linalg.inv(known.covariance)
    found = []
    for (name, page, cache, _), (rows, sigmas, _) in zip(starts, effects, strict=True):
        weighted = rows / sigmas[:, None]
        then = spread(np.asarray(np.linalg.inv(precision + weighted.T @ weighted)))
        found.append(RunSuggestion(name, page, cache, now, then))
    best: dict[str, RunSuggestion] = {}
    for suggestion in sorted(found, key=lambda s: s.spread_then):
        best.setdefault(suggestion.model, suggestion)
    return tuple(best.values())[:most]


def _widened(known: Posterior, values: Mapping[Key, float], prior: Profile, keys: Iterable[Key]) -> Posterior:
    """The posterior, with coefficients that no run has touched at their prior width."""
    new = [key for key in dict.fromkeys(keys) if key not in set(known.keys) and values.get(key, 0.0) > 0]
    new_groups = list(dict.fromkeys(group for key in new if (group := group_of(key)) not in known.groups))
    widths = [*(scale_width(prior, group) for group in new_groups), *(deviation_width(prior, key) for key in new)]
    rows, columns = known.basis.shape
    basis = np.zeros((rows + len(new), columns + len(widths)))
    basis[:rows, :columns] = known.basis
    for i, key in enumerate(new):
        group = group_of(key)
        scale = columns + new_groups.index(group) if group in new_groups else known.groups.index(group)
        basis[rows + i, [scale, columns + len(new_groups) + i]] = 1.0
    covariance = np.diag(np.square([*np.zeros(columns), *widths]))
    covariance[:columns, :columns] = known.covariance
    return Posterior((*known.keys, *new), (*known.groups, *new_groups), basis, covariance)


def _sensitivity(
    parts: Mapping[str, Sequence[Part]], values: Mapping[Key, float], prior: Profile, known: Posterior
) -> tuple[Matrix, Vector, float]:
    """Derivatives of each phase of a start in the parameters [s], the deviation its measurement would have [s], and the total."""
    position = {key: i for i, key in enumerate(known.keys)}
    rows, sigmas, total = [], [], 0.0
    for phase, found in parts.items():
        slopes, seconds = np.zeros(len(position)), 0.0
        for term, variant, factors in found:
            for name, factor in factors:
                share = factor * values.get((term, variant, name), 0.0)
                seconds += share
                if (term, variant, name) in position:
                    slopes[position[term, variant, name]] += share
        total += seconds
        rows.append(slopes @ known.basis)
        misfit = prior.misfit.get(phase, RELATIVE_SCATTER)
        sigmas.append(math.hypot(math.hypot(RELATIVE_SCATTER, misfit) * seconds, ABSOLUTE_SCATTER))
    return np.stack(rows), np.array(sigmas), total
