"""Calibrate a host: from no run to many, one estimator.

Without runs the prior comes back; one run moves the scales of its phases; with many runs the data decide (``calibration.fit.posterior``). Without a
prior the runs decide alone (``calibration.fit.without_prior``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from calibration.fit.posterior import Fitted, maximise
from calibration.fit.rows import Figures, Key, RunNote
from calibration.fit.suggest import RunSuggestion, suggest_runs
from calibration.fit.without_prior import fit_alone, with_new_terms
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, StartupModelError, missing, wrong_type
from startup_model.hardware import STORAGE_DEFAULTS, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import ProfileLike, as_profile, predict
from startup_model.profile import (
    ASSUMED_NUMBERS,
    CoefficientValue,
    HeldOut,
    Host,
    Profile,
    Provenance,
    select_reference,
)
from startup_model.recipe import ENOUGH_GROUPS, cpu_preset, recipe, version_of

MAX_FOLDS = 12
"""Groups that are left out one at a time within a fit; more are left out in as many folds."""
CONTRADICTION = 10.0
"""Two runs of one configuration that differ by this factor contradict each other."""
OUTLIER = 4.0
"""A measurement counts as an outlier when it lies further from the fit than so many of its standard deviations."""


class FitReport(NamedTuple):
    """How a fit went: one boolean for each way to be wrong, and the words to go with it."""

    runs_used: int
    groups: int
    converged: bool
    """False: the solver stopped early; look for contradictory runs."""
    at_bound: bool
    """True: a scale ran into its bound (a factor of 1000); the figures or their units are wrong."""
    not_identifiable: tuple[str, ...]
    """Coefficients that the runs do not tell apart: they stay at the prior, or move with their phase. More kinds of runs would fix them."""
    too_few_groups: bool
    """True: fewer models than an interval of held-out errors needs; profile more models."""
    page_cache_mixed: bool
    """True: loads of unknown state came from storage in part; drop the cache or read the files first, and say which."""
    outliers: tuple[RunNote, ...]
    """Measurements far from the fit; repeat them."""
    version_mismatch: bool
    """True: runs of several engine versions, or of another one than the prior's."""
    page_cache: tuple[RunNote, ...]
    """State that was inferred for each load whose state was unknown."""
    compile_cache: tuple[RunNote, ...]
    """The same for the compile cache."""
    skipped: tuple[RunNote, ...]
    """Runs, or parts of them, that could not be used."""
    far_from_prior: tuple[str, ...]
    """Phases that take much more or less than on the prior's host; check the units and whether something else ran."""
    residual_rms: float
    """Root mean square of the residuals, in units of their standard deviations: about 1 when the widths are right."""

    @property
    def set_aside(self) -> tuple[RunNote, ...]:
        """The earlier name of ``skipped``."""
        return self.skipped

    def text(self) -> str:
        """The report in words, one line a finding."""
        told = {
            "the solver did not converge: look for runs that contradict each other": not self.converged,
            "a scale ran into its bound: check the units of the runs": self.at_bound,
            f"fewer than {ENOUGH_GROUPS} models: the interval rests on the spread between reference hosts; profile more models": self.too_few_groups,
            f"not told apart by these runs, in the prior's proportions: {', '.join(self.not_identifiable)}; other kinds of runs would": self.not_identifiable,
            "page-cache states are mixed: say hot or cold run by run, or make them so before the start": self.page_cache_mixed,
            "engine versions differ, or differ from the prior's: effects of versions are taken from the prior; fit one version at a time": self.version_mismatch,
        }
        lines = [
            f"runs: {self.runs_used}, models: {self.groups}; residuals {self.residual_rms:.2f} standard deviations",
            *(words for words, is_so in told.items() if is_so),
            *(f"unlike the prior: {words}" for words in self.far_from_prior),
        ]
        for title, notes in (
            ("page cache", self.page_cache),
            ("compile cache", self.compile_cache),
            ("outlier, repeat it or leave it out", self.outliers),
            ("skipped", self.skipped),
        ):
            lines += [f"{title}: run {note.run} ({note.label}): {note.note}" for note in notes]
        return "\n".join(lines)


class Calibration(NamedTuple):
    """A profile, how its fit went, and what the next runs are told from."""

    profile: Profile
    report: FitReport
    runs: tuple[RunRecord, ...] = ()
    prior: Profile | None = None
    """What the fit began with."""
    fitted: Fitted | None = None
    """The coefficients with what is known of them; None where nothing was fitted."""

    @property
    def next_runs(self) -> tuple[RunSuggestion, ...]:
        """What to profile next, the most useful first; empty without a prior, which would say what is not known."""
        return suggest_runs(self)


def fit_profile(
    runs: Iterable[RunRecord],
    prior: ProfileLike | Literal["none"] | None = None,
    *,
    name: str = "host",
    allow_mixed_hosts: bool = False,
    held_out: bool = True,
) -> Profile:
    """The profile of the host that the runs were made on: ``calibrate(...).profile``, with its arguments and errors."""
    return calibrate(runs, prior, name=name, allow_mixed_hosts=allow_mixed_hosts, held_out=held_out).profile


def calibrate(
    runs: Iterable[RunRecord],
    prior: ProfileLike | Literal["none"] | None = None,
    *,
    name: str = "host",
    allow_mixed_hosts: bool = False,
    held_out: bool = True,
) -> Calibration:
    """Fit the profile of a host.

    prior: a Profile, its file or name; None: the reference nearest to the runs; ``"none"``: the runs alone, by robust non-negative least squares (they
    must then tell all coefficients apart that they need). held_out: also leave every model out once, for the interval. Without runs, the
    prior itself is returned. Raises ConfigError for runs of several hosts (unless allowed), runs that contradict each other by a factor of ten, or
    no usable run; ProfileError when nothing is left to fit.
    """
    runs = _as_runs(runs)
    if prior is not None and prior != "none":
        prior = as_profile(prior)
    if not runs:
        if not isinstance(prior, Profile):
            raise missing("runs", "without runs a prior is needed", "give prior = a Profile, or runs")
        return Calibration(prior, _NO_RUNS)
    _check_hosts(runs, allow_mixed_hosts)
    _check_contradictions(runs)
    base = prior if isinstance(prior, Profile) else nearest_prior(runs)
    host = host_of_runs(runs, base)
    base = with_new_terms(base, runs, host)
    if base.kind == "calibrated" and prior != "none" and base.provenance.records_digest == digest_of(runs):
        problem = f"they are those that {base.name} was fitted on"
        raise ConfigError("runs", f"{len(runs)} runs", problem, "give new runs, or another prior")
    use_prior = prior != "none"
    figures = Figures(runs, base, host)
    fitted = _fit(figures, use_prior=use_prior)
    profile = _profile(figures, fitted, name)
    if held_out:
        errors = _held_out(figures, use_prior=use_prior)
        profile = profile.replace(held_out=HeldOut(by="model", errors=profile.held_out.errors | errors))
    return Calibration(profile, _report(figures, fitted), tuple(runs), base, fitted)


def _fit(figures: Figures, *, use_prior: bool) -> Fitted:
    return maximise(figures.rows, figures.prior) if use_prior else fit_alone(figures)


# --- results --------------------------------------------------------------------------------------------------------------


def _profile(figures: Figures, fitted: Fitted, name: str) -> Profile:
    """The profile that a fit gives."""
    prior, runs = figures.prior, figures.runs
    old = prior if prior.kind == "calibrated" else None
    coefficients = {
        term: {
            variant: {
                coefficient: _coefficient((term, variant, coefficient), entry, fitted, prior.name)
                for coefficient, entry in entries.items()
            }
            for variant, entries in variants.items()
        }
        for term, variants in prior.coefficients.items()
    }
    versions = sorted({run.engine.version or prior.engine_version for run in runs})
    is_other = len(versions) == 1 and versions[0] != prior.engine_version
    starts = dict.fromkeys((run.model, run.hardware, run.engine) for run in runs)
    inputs = [recipe(*start, figures.host, version_of(start[2], prior)).inputs for start in starts]
    columns = {
        key: [*(row[key] for row in inputs), *(before if old else ())]
        for key, before in prior.domain.items()
        if key in inputs[0]
    }
    kinds = {kind for model, _, _ in starts for kind in model.layers_by_kind} | set(prior.layer_kinds)
    digest = digest_of(runs)
    return prior.replace(
        name=name,
        kind="calibrated",
        **_engine(runs[0], prior),
        runs_version=versions[0].removeprefix("v") if is_other else None,
        host=figures.host,
        coefficients=coefficients,
        held_out=HeldOut(by="model", errors=dict(old.held_out.errors) if old else {}),
        domain={key: (min(values), max(values)) for key, values in columns.items()},
        layer_kinds=tuple(sorted(kinds)),
        provenance=Provenance(
            citation=f"fitted on {len(runs)} runs of {', '.join(versions)}; prior {prior.name}",
            runs=dict(Counter(old.provenance.runs if old else ()) + Counter(run.dataset or "runs" for run in runs)),
            records_digest=hashlib.sha256(f"{old.provenance.records_digest}{digest}".encode()).hexdigest()
            if old
            else digest,
        ),
    )


def _coefficient(key: Key, entry: CoefficientValue, fitted: Fitted, prior: str) -> CoefficientValue:
    """A coefficient with where it comes from."""
    value, sigma = fitted.values[key], fitted.sigmas.get(key)
    if key in fitted.fitted:
        return CoefficientValue(value=rounded(value), unit=entry.unit, std_error=rounded(sigma or 0.0), source="fitted")
    if value == entry.value:
        return entry if entry.source == "fixed" else entry.replace(source="borrowed", note=f"of {prior}")
    return CoefficientValue(
        value=rounded(value),
        unit=entry.unit,
        std_error=rounded(sigma) if sigma else entry.std_error,
        source="fixed" if entry.source == "fixed" else "borrowed",
        note=f"of {prior}, moved with its phase by {value / entry.value:.3g}" if entry.value else "",
    )


def _engine(run: RunRecord, prior: Profile) -> dict[str, Any]:
    """Fields of the profile that say which engine it is of: the prior's, unless the runs are of another engine."""
    if run.engine.engine == prior.engine:
        return {}
    resolved = run.engine.resolve(run.model, run.hardware)
    version = resolved.version_text.removeprefix("v")
    return {
        "engine": run.engine.engine,
        "engine_version": version,
        "generation": resolved.generation,
        "version_effects": (),
    }


def _report(figures: Figures, fitted: Fitted) -> FitReport:
    """How the fit went."""
    rows, prior = figures.rows, figures.prior
    groups = len({run.model.name for run in figures.runs})
    unknown = [key for key in rows.keys() if key not in fitted.fitted and fitted.values[key] > 0]  # noqa: SIM118
    outliers = []
    for row in np.flatnonzero(np.abs(fitted.residuals) > OUTLIER):
        run, label = int(rows.run[row]), rows.shapes[rows.shape[row]].label
        note = f"{label} = {rows.seconds[row]:.3g} s, {abs(fitted.residuals[row]):.0f} standard deviations off"
        outliers.append(RunNote(run, figures.runs[run].model.name, note))
    return FitReport(
        runs_used=len(np.unique(rows.run)),
        groups=groups,
        converged=fitted.converged,
        at_bound=fitted.at_bound,
        not_identifiable=tuple(f"{term}.{name}" for term, _, name in unknown),
        too_few_groups=groups < ENOUGH_GROUPS,
        page_cache_mixed=len({note.note.split(maxsplit=1)[0] for note in figures.load_states}) > 1,
        outliers=tuple(outliers),
        version_mismatch={run.engine.version or prior.engine_version for run in figures.runs} != {prior.engine_version},
        page_cache=tuple(figures.load_states),
        compile_cache=tuple(figures.compile_states),
        skipped=tuple(figures.notes),
        far_from_prior=fitted.far_from_prior,
        residual_rms=float(np.sqrt(np.mean(np.square(fitted.residuals)))),
    )


_NO_RUNS = FitReport(0, 0, True, False, (), True, False, (), False, (), (), (), (), 0.0)


# --- hosts and checks -----------------------------------------------------------------------------------------------------


def host_of_runs(runs: Sequence[RunRecord], prior: Profile) -> Host:
    """The host of the runs: its own numbers where they are given, else those of the prior's host, else defaults.

    Coefficients are relative to these numbers, whatever they are; what counts is that predictions use the same. A score that the node of the runs does not have stays
    unknown, and numbers that nobody has measured are marked as assumed: a later probe of the same host then changes no prediction.
    """
    hardware, theirs = runs[0].hardware, prior.host
    fields = host_fields(hardware)
    for name in ("page_cache_bandwidth", "device_flops", "host_to_device_bandwidth"):
        fields[name] = fields[name] or getattr(theirs, name)
    for tier, default in STORAGE_DEFAULTS.items():
        fields[f"{tier}_bandwidth"] = fields[f"{tier}_bandwidth"] or default
    return Host(**fields | (_numbers_of_processor(hardware, theirs) if hardware.is_cpu_only else {}))


def host_fields(hardware: HardwareConfig) -> dict[str, Any]:
    """What a node says about itself, by the fields of ``Host``; None where it does not."""
    storage = hardware.storage
    return {
        "cpu": hardware.cpu.model,
        "gpu": hardware.gpu,
        "platform": hardware.platform,
        "single_thread_score": hardware.cpu.score,
        "gpu_memory_bandwidth": hardware.gpu_memory_bandwidth,
        "host_to_device_bandwidth": hardware.host_to_device_bandwidth,
        "device_flops": hardware.gpu_flops,
    } | {f"{tier}_bandwidth": getattr(storage, tier) for tier in STORAGE_DEFAULTS}


def _numbers_of_processor(hardware: HardwareConfig, theirs: Host) -> dict[str, Any]:
    """Fields of a host without accelerators, and which of them nobody has measured.

    Where the prior is of such a host, its coefficients are relative to what it assumed, and to what it measured where this node has nothing.
    """
    preset = cpu_preset()
    is_own = {
        "gpu_memory_bandwidth": hardware.gpu_memory_bandwidth != preset.gpu_memory_bandwidth,
        "page_cache_bandwidth": hardware.storage.page_cache is not None,
        "device_flops": hardware.gpu_flops not in (None, preset.gpu_flops),
    }
    if theirs.platform != "cpu":
        return {"assumed": tuple(name for name in ASSUMED_NUMBERS if not is_own[name])}
    kept = {n: getattr(theirs, n) for n in ASSUMED_NUMBERS if n in theirs.assumed or not is_own[n]}
    return kept | {"assumed": theirs.assumed}


def nearest_prior(runs: Sequence[RunRecord]) -> Profile:
    """The reference profile nearest to most of the runs."""
    names: Counter[str] = Counter()
    for run in runs:
        resolved = run.engine.resolve(run.model, run.hardware)
        found = select_reference(run.engine.engine, resolved.generation, resolved.version, run.hardware)
        names[found.profile.name] += 1
    return Profile.reference(names.most_common(1)[0][0])


def _as_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """A list of records from any iterable of them. Raises ConfigError."""
    if isinstance(runs, RunRecord):
        raise wrong_type("runs", "one RunRecord", "a list of runs", "give [run]")
    found: list[Any] = (
        list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes | Mapping) else [runs]
    )
    for index, run in enumerate(found):
        if not isinstance(run, RunRecord):
            raise wrong_type(f"runs[{index}]", run, "a RunRecord", "give records, as read_runs(path) returns them")
    return found


def _check_hosts(runs: Sequence[RunRecord], allow_mixed_hosts: bool) -> None:
    engines = sorted({run.engine.engine for run in runs})
    if len(engines) > 1:
        problem = f"one profile is of one engine, these are of: {', '.join(engines)}"
        raise ConfigError("runs", f"{len(engines)} engines", problem, "fit each by itself")
    hosts = dict.fromkeys((run.host, run.hardware.gpu, run.hardware.cpu.model) for run in runs)
    if len(hosts) > 1 and not allow_mixed_hosts:
        shown = "; ".join(" ".join(part for part in host if part) for host in hosts)
        problem = f"one profile is of one host, these are of: {shown}"
        raise ConfigError("runs", f"{len(hosts)} hosts", problem, "fit each by itself, or allow mixed hosts")


def _check_contradictions(runs: Sequence[RunRecord]) -> None:
    """Refuse two runs of one configuration whose times differ by a factor of ten: wall times, or the sums of the same phases."""
    seen: dict[tuple[object, ...], tuple[int, float]] = {}
    for index, run in enumerate(runs):
        if run.status != "ok" or (run.wall_s is None and not run.phases):
            continue
        field = "phases" if run.wall_s is None else "wall_s"
        seconds = sum(run.phases.values()) if run.wall_s is None else run.wall_s
        key = (run.model, run.hardware, run.engine, *(run.phases if run.wall_s is None else ()))
        first, wall = seen.setdefault(key, (index, seconds))
        if max(wall, seconds) > CONTRADICTION * max(min(wall, seconds), 1e-9):
            problem = f"run {first} of the same configuration took {wall:.4g} s"
            raise ConfigError(field, seconds, problem, "check the units, or leave one out")


def _held_out(figures: Figures, *, use_prior: bool) -> dict[str, float]:
    """Relative errors of totals of models that a fit has not seen: each left out once, or in at most a dozen folds."""
    runs = figures.runs
    models = list(dict.fromkeys(run.model.name for run in runs))
    if len(models) < 2:
        return {}
    folds = [models[i :: min(len(models), MAX_FOLDS)] for i in range(min(len(models), MAX_FOLDS))]
    errors: dict[str, float] = {}
    for fold in folds:
        kept = [run for run in runs if run.model.name not in fold]
        prior = figures.prior.without_model_effects({run.model.structure for run in runs if run.model.name in fold})
        try:
            part = Figures(kept, prior, figures.host, figures.parts)
            profile = _profile(part, _fit(part, use_prior=use_prior), "fold")
        except StartupModelError:
            continue
        for model in fold:
            tried = [total_error(run, profile) for run in runs if run.model.name == model]
            if found := [error for error in tried if error is not None]:
                errors[model] = rounded(max(found, key=abs))
    return errors


def total_error(run: RunRecord, profile: Profile) -> float | None:
    """Predicted / measured - 1 of the wall time of a run whose cache states are known; None for other runs."""
    if run.ready_s is None or run.status != "ok" or run.ready_s <= 0:
        return None
    if run.engine.page_cache == "unknown" and run.engine.load_format != "dummy":
        return None
    return predict(run.model, run.hardware, run.engine, profile=profile).total_s / run.ready_s - 1.0


def diff_profiles(
    old: Profile, new: Profile, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig | None = None
) -> dict[str, tuple[float, float]]:
    """Phase -> seconds by the old and by the new profile, for one start; ``total`` is the last entry. Raises ConfigError."""
    found = [predict(model, hardware, engine, profile=profile) for profile in (old, new)]
    seconds = {str(phase): (entry.seconds, found[1].phases[phase].seconds) for phase, entry in found[0].phases.items()}
    return seconds | {"total": (found[0].total_s, found[1].total_s)}


def digest_of(runs: Iterable[RunRecord]) -> str:
    """SHA-256 of the records, in order."""
    digest = hashlib.sha256()
    written: dict[tuple[ModelConfig, HardwareConfig, EngineConfig], bytes] = {}
    for run in runs:
        key = (run.model, run.hardware, run.engine)
        if key not in written:
            written[key] = hashlib.sha256("\n".join(part.model_dump_json() for part in key).encode()).digest()
        digest.update(written[key])
        digest.update(run.model_dump_json(exclude={"model", "hardware", "engine"}).encode())
    return digest.hexdigest()


def rounded(value: float) -> float:
    """Six significant digits: what the data support, and the same on every machine."""
    return float(f"{value:.6g}")
