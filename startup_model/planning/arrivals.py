"""When replicas are asked for: at random with a mean rate, or as measured."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.frozen import FrozenModel
from startup_model.planning.checks import number, seconds

__all__ = ["Arrivals", "MeasuredArrivals", "PoissonArrivals", "as_arrivals"]

MOST_ARRIVALS = 1_000_000
"""More are refused: a year of two demands a minute."""

LATEST_S = 1e11
"""Seconds since 1970 up to the year 5138; larger numbers are milliseconds."""


class PoissonArrivals(FrozenModel):
    """Demands for a replica that come independently of each other. Bursts are not: measure them."""

    rate_per_s: Annotated[float, Field(ge=0, le=1e6)]
    """Mean number of demands per second; an hourly rate / 3600."""


@dataclass(frozen=True, eq=False, init=False)
class MeasuredArrivals:
    """Demands for a replica as they came: bursts, daily cycles and all."""

    times_s: NDArray[np.float64] = field(repr=False)
    """Time of each demand [s] since any origin, in order."""
    duration_s: float
    """How long was measured [s]."""

    def __init__(self, times_s: Iterable[float], duration_s: float | None = None) -> None:
        """times_s [s]: numbers in any order; duration_s [s]: None for the time from the first demand to the last. Raises ConfigError for what is no list
        of times, and for more than a million of them."""
        times = _times(times_s)
        span = float(times[-1] - times[0])
        duration = span if duration_s is None else seconds("duration_s", duration_s)
        if duration < span:
            problem = f"the demands themselves span {span:g} s"
            raise ConfigError("duration_s", duration_s, problem, "give the whole time measured")
        object.__setattr__(self, "times_s", times)
        object.__setattr__(self, "duration_s", duration)

    @property
    def measured_s(self) -> float:
        """The time measured [s]. Raises ConfigError where all demands came at once and no duration was given."""
        if not self.duration_s:
            raise ConfigError("duration_s", 0.0, "all demands come at once: there is no rate", "give duration_s")
        return self.duration_s

    @property
    def rate_per_s(self) -> float:
        """Demands per second. Raises ConfigError like ``measured_s``."""
        return len(self.times_s) / self.measured_s


Arrivals = PoissonArrivals | MeasuredArrivals


def as_arrivals(value: Arrivals | float) -> Arrivals:
    """Arrivals as they are; a number is a Poisson rate per second. Raises ConfigError for anything else."""
    if isinstance(value, PoissonArrivals | MeasuredArrivals):
        return value
    remedy = "give PoissonArrivals(rate_per_s=...), MeasuredArrivals(times_s=[...]) or a rate"
    return PoissonArrivals(rate_per_s=number("arrivals", value, 0.0, 1e6, remedy))


def _times(values: object) -> NDArray[np.float64]:
    """The times in order. Raises ConfigError."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | dict):
        raise ConfigError("times_s", values, "it should be a list of times in seconds", "such as [0.0, 12.5, 13.1]")
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "iuf"):
        problem = f"it is an array of {values.dtype} with {values.ndim} dimensions"
        raise ConfigError("times_s", MISSING, problem, "give one dimension of seconds")
    if isinstance(values, Sized) and len(values) > MOST_ARRIVALS:
        raise _too_many(f"{len(values):,}")
    try:
        times = np.array(array("d", islice(values, MOST_ARRIVALS + 1)))
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, StartupModelError):
            raise
        raise ConfigError("times_s", MISSING, "not all of it are numbers", "give times in seconds") from None
    if len(times) > MOST_ARRIVALS:
        raise _too_many(f"more than {MOST_ARRIVALS:,}")
    if len(times) == 0:
        raise ConfigError("times_s", MISSING, "no demands", "give at least one, or a rate as PoissonArrivals")
    wrong = times[~(np.abs(times) <= LATEST_S)]
    if len(wrong):
        raise ConfigError(
            "times_s",
            float(wrong[0]),
            f"times are finite and within {LATEST_S:g} s of their origin",
            "give seconds; are these milliseconds?",
        )
    times.sort()
    times.flags.writeable = False
    return times


def _too_many(how_many: str) -> ConfigError:
    remedy = f"give at most {MOST_ARRIVALS:,} (a shorter stretch), or their rate as PoissonArrivals"
    return ConfigError("times_s", MISSING, f"{how_many} demands", remedy)
