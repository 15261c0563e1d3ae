"""``sweep``: predictions over a grid, in one evaluation of the terms on arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from startup_model.errors import MISSING, ConfigError
from startup_model.factors import SAFETY_FACTOR, check_safety_factor
from startup_model.grid.axes import read_axes
from startup_model.grid.evaluate import branches_of, make_grid, times_of
from startup_model.grid.result import Sweep
from startup_model.plan import Plan
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, ProfileLike, as_start, check_include
from startup_model.uncertainty import check_level

__all__ = ["sweep"]


def sweep(
    model_cfg: ModelLike,
    hw_cfg: HardwareLike,
    engine_cfg: EngineLike | None = None,
    axes: Mapping[str, Any] | None = None,
    *,
    profile: ProfileLike | None = None,
    level: float = 0.9,
    safety_factor: float = SAFETY_FACTOR,
    include: Iterable[str] = (),
    **engine_options: Any,
) -> Sweep:
    """``predict`` over a grid: total_s[i, j, ...] = sum of the phases of the start with the i-th value of the first axis, the j-th of the second ...

    axes: dotted field -> values, ``{"model": [...], "hardware": ["h100-sxm", "l40s"], "engine.tp": [1, 2, 4],
    "hardware.storage.cold_bandwidth": numpy.geomspace(2e8, 1e10, 50)}``. Any field of the three configurations, the parts ``model``, ``hardware``,
    ``engine`` and ``profile`` as wholes, and ``hardware.storage.cold_bandwidth`` for the tier in use. Values may have labels: ``{label: value}``. Under a
    name of your own, each label stands for several changes: ``{"store": {"NFS": {"hardware.storage.tier": "network_disk", "engine.page_cache":
    "cold"}, ...}}``. The other arguments are those of ``predict``, and the base on which the axes act. A node that does not say how many accelerators
    it has (``gpus``) has as many as the engine needs.

    Bandwidths [B/s], single-thread scores [1], times [s] and sizes [B] of a node are taken as arrays by the terms and cost next to nothing; every combination of
    other fields (flags, models, memory sizes; the bandwidth of device memory where no profile is given, since it chooses the reference) is planned once, which
    takes up to a millisecond. A network disk faster than ``network_bandwidth`` is bounded by it. Raises ConfigError, InputFileError or ProfileError with one line;
    a single combination that cannot be is a point of status ``invalid``, unless none can be.
    """
    base = as_start(model_cfg, hw_cfg, engine_cfg, profile, engine_options)
    level, safety = check_level(level), check_safety_factor(safety_factor)
    grid = make_grid(base, read_axes(axes, base))
    if not any(isinstance(plan, Plan) for plan in grid.plans.flat):
        first = grid.plans.flat[0]
        problem = f"no point can be: {first}" if grid.plans.size == 1 else f"no point can be, the first since {first}"
        raise ConfigError("axes", MISSING, problem)
    branches = branches_of(grid, check_include(include))
    return Sweep(grid, branches, times_of(grid, branches), level, safety)
