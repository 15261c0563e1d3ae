"""Rebuild the reference profiles that come with startup_model: ``python -m calibration.fit.reference [--check]``.

One profile for each published host. The host of the special data sets (cold storage, cold compile, load formats,
quantisation, no torch.compile, engine versions) is fitted on all of them; the others on their own runs, and borrow what
they lack, scaled by the ratio of the two hosts in the same phase. Numbers are rounded to six significant digits, so
that the files come out the same bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import startup_model
from calibration.fit.calibrate import calibrate, host_fields, rounded, total_error
from calibration.fit.posterior import SMALL_SAMPLE
from calibration.fit.rows import recipe_of
from calibration.fit.validate import HeldOutReport, leave_one_out
from calibration.fit.without_prior import HostFit, fit_host, observe
from calibration.runs.published import CITATION, HOSTS, published_runs, records_digest
from calibration.runs.record import RunRecord
from startup_model.frozen import FrozenModel
from startup_model.phases import PHASES, TERMS, Term
from startup_model.profile import CoefficientValue, HeldOut, Host, Profile, Provenance, VersionEffect
from startup_model.versions import parse_version


class _Constant(FrozenModel):
    """A coefficient that the published runs say nothing about."""

    value: float
    std_error: float
    note: str


class Settings(FrozenModel):
    """``data/reference.toml``, whose comments say what each entry is."""

    version: str
    versions: str
    anchor: str
    domain: list[str]
    own: dict[str, frozenset[str]]
    scaled: dict[str, frozenset[str]]
    constants: dict[str, _Constant]


DONOR = next(iter(HOSTS))
"""The host of the special data sets, from which the others borrow what they lack."""
SETTINGS = Settings.model_validate_json(
    json.dumps(tomllib.loads(files("calibration").joinpath("data/reference.toml").read_text(encoding="utf-8")))
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the profiles, or with ``--check`` compare them with the files. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m calibration.fit.reference", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    check = parser.parse_args(arguments).check
    folder = Path(startup_model.__file__).parent / "data" / "profiles"
    stale = []
    for profile in build_profiles():
        path = folder / f"{profile.name}.json"
        text = profile.to_json()
        if not check:
            profile.save(path)
            sys.stdout.write(f"{path.name}: {len(text)} bytes, {sum(profile.provenance.runs.values())} runs\n")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        sys.stdout.write(f"not as rebuilt: {', '.join(stale)}; run python -m calibration.fit.reference\n")
    return 1 if stale else 0


def build_profiles() -> tuple[Profile, ...]:
    """The reference profiles of all published hosts."""
    runs = published_runs()
    shared = shared_by_all(runs)
    reports = {
        name: leave_one_out(_main_runs(name, runs), lambda model, name=name: profile_of(name, shared, model))  # type: ignore[misc]
        for name in HOSTS
    }
    shared.fields["misfit"] = _misfit(reports.values())
    shared.fields["one_run_spread"] = _one_run_spread(runs, profile_of(DONOR, shared))
    errors = {name: {row.group: rounded(row.error) for row in report.rows} for name, report in reports.items()}
    return tuple(profile_of(name, shared, held_out=errors[name]) for name in HOSTS)


def _main_runs(host: str, runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs of the session that the coefficients of a host stand for."""
    return [run for run in usable(host, runs) if run.dataset == HOSTS[host].main_dataset]


class Shared(NamedTuple):
    """What the profiles of all hosts have in common."""

    runs: tuple[RunRecord, ...]
    donor: HostFit
    persistence: Mapping[str, float]
    fields: dict[str, Any]
    """Fields of ``Profile``."""


def shared_by_all(runs: tuple[RunRecord, ...]) -> Shared:
    """What the profiles of all hosts have in common, but for what profiles of all of them say."""
    donor = fit_published(DONOR, runs)
    effects, version_spread = _version_effects(runs, donor)
    sessions, session_spread = _session_spread(donor)
    fields = {
        "kind": "reference",
        "engine": "vllm",
        "engine_version": SETTINGS.version,
        "generation": "v1",
        "version_effects": effects,
        "version_spread": version_spread,
        "transfer_spread": _transfer_spread(runs),
        "transfer_hosts": len(HOSTS),
        "session_spread": session_spread,
        "sessions": sessions,
        "shape_spread": _shape_spread(runs),
    }
    return Shared(runs, donor, _persistence(runs), fields)


def profile_of(
    name: str, shared: Shared, without_model: str | None = None, held_out: Mapping[str, float] | None = None
) -> Profile:
    """The profile of a host, fitted without the runs of one model if asked."""
    fit = fit_published(name, shared.runs, without_model)
    own, host = usable(name, shared.runs), host_of(name)
    sets = Counter(run.dataset for run in own)
    return Profile(
        name=name,
        host=host,
        coefficients=_coefficients(fit, shared.donor if name != DONOR else None),
        model_effects=_model_effects(fit, own, without_model, host, shared.persistence),
        held_out=HeldOut(by="model", errors=dict(held_out or {})),
        domain=_domain(own, host),
        layer_kinds=tuple(sorted({kind for run in own for kind in run.model.layers_by_kind})),
        provenance=Provenance(citation=CITATION, runs=dict(sets), records_digest=records_digest()),
        **shared.fields,
    )


def host_of(name: str) -> Host:
    """A published host as a profile keeps it."""
    hardware = HOSTS[name].hardware
    return Host(**host_fields(hardware) | {"single_thread_score": hardware.cpu.score or 1.0})


def usable(host: str, runs: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """The runs of a host at the main engine version, without load times of which the page-cache state is not known."""
    kept = []
    for run in runs:
        if run.hardware != HOSTS[host].hardware or run.engine.version != SETTINGS.version:
            continue
        if run.engine.page_cache == "unknown":
            # The wall time stays what it was less the load, so that the unattributed time is right.
            load = run.phases.get("weight_load", 0.0)
            phases = {name: seconds for name, seconds in run.phases.items() if name != "weight_load"}
            kept.append(run.replace(phases=phases, wall_s=None if run.wall_s is None else run.wall_s - load))
        else:
            kept.append(run)
    return tuple(kept)


def fit_published(host: str, runs: Iterable[RunRecord], without_model: str | None = None) -> HostFit:
    """Fit one published host, all runs of one model left out if asked."""
    numbers = host_of(host)
    kept = [run for run in usable(host, runs) if run.model.name != without_model]
    observations = [o for run in kept for o in observe(run, numbers, SETTINGS.own)]
    main_sessions = frozenset(
        {HOSTS[host].main_dataset, *(run.dataset for run in kept if run.engine.page_cache == "cold")}
    )
    return fit_host(observations, main_sessions, SETTINGS.scaled)


# --- coefficients with provenance -----------------------------------------------------------------------------------------


def _coefficients(fit: HostFit, donor: HostFit | None) -> dict[str, dict[str, dict[str, CoefficientValue]]]:
    """All sets of a host: fitted ones, fixed constants, and what is borrowed from the donor. A term that none of these gives is younger than the
    published runs: it stays absent, and predictions take the value that changes nothing."""
    table: dict[str, dict[str, dict[str, CoefficientValue]]] = {}
    for term in TERMS.values():
        found = {variant for name, variant in (*fit.sets, *(donor.sets if donor else ())) if name == term.name}
        if term.set_name != term.name or not (
            found or any(f"{term.name}.{n}" in SETTINGS.constants for n in term.coefficients)
        ):
            continue
        variants = sorted(found | {"default"}, key=lambda v: (v != "default", v))
        table[term.name] = {variant: _set(term, variant, fit, donor) for variant in variants}
    return table


def _set(term: Term, variant: str, fit: HostFit, donor: HostFit | None) -> dict[str, CoefficientValue]:
    """One set: the fit's own, else the donor's scaled by the ratio of the hosts; constants where the runs say nothing."""
    key = (term.name, variant)
    own, scale, note = fit.sets.get(key), 1.0, ""
    if own is None and donor is not None and key in donor.sets:
        own, scale = donor.sets[key], _host_ratio(term.name, fit, donor)
        note = f"of {DONOR}, times {scale:.4g}"
    source: Literal["borrowed", "fitted"] = "borrowed" if note else "fitted"
    if own is not None and variant in SETTINGS.scaled.get(term.name, ()):  # one factor is all that its runs say
        default = (fit if key in fit.sets else donor or fit).sets[term.name, "default"].values
        factor = next((value / default[name] for name, value in own.values.items() if default[name]), 1.0)
        note = f"{factor:.4g} times the default set, one factor fitted on runs of this setting" + (
            f"; {note}" if note else ""
        )
    values: dict[str, CoefficientValue] = {}
    for name, meta in term.coefficients.items():
        fixed = SETTINGS.constants.get(f"{term.name}.{name}")
        if fixed is not None:
            values[name] = CoefficientValue(unit=meta.unit, source="fixed", **dict(fixed))
        elif own is not None:
            values[name] = _borrowed_coefficient(key, name, fit, donor) or CoefficientValue(
                value=rounded(own.values[name] * scale),
                unit=meta.unit,
                std_error=rounded(own.std_errors.get(name, 0.0) * scale),
                source=source,
                note=note,
            )
    return values


def _borrowed_coefficient(
    key: tuple[str, str], name: str, fit: HostFit, donor: HostFit | None
) -> CoefficientValue | None:
    """The storage ratio of a host or a load format without cold runs: that of the donor, or of the default format."""
    if (key[0], name) != ("weight_load", "storage_ratio") or (donor is None and key[1] == "default"):
        return None
    value = (donor or fit).sets["weight_load", "default"].values[name]
    note = f"of {DONOR}" if donor else "of the default format: no cold run with this one"
    return CoefficientValue(value=rounded(value), unit="1", std_error=None, source="borrowed", note=note)


def _host_ratio(term: str, fit: HostFit, donor: HostFit) -> float:
    """How much longer a phase takes on the fitted host than on the donor, by their default coefficients of the same
    layer or byte."""
    own, other = fit.sets.get((term, "default")), donor.sets.get((term, "default"))
    if own is None or other is None:
        return 1.0
    both = [name for name in own.values if own.values[name] > 0 and other.values[name] > 0]
    slopes = [name for name in both if name != "base_seconds"] or both
    logs = [math.log(own.values[name] / other.values[name]) for name in slopes]
    return float(np.exp(np.mean(logs))) if logs else 1.0


def _bounds(values: Iterable[float]) -> tuple[float, float]:
    """Smallest and largest, rounded outwards to six significant digits."""
    numbers = sorted(values)
    low, high = rounded(numbers[0]), rounded(numbers[-1])
    return min(low, numbers[0]), max(high, numbers[-1])


def _domain(runs: Iterable[RunRecord], host: Host) -> dict[str, tuple[float, float]]:
    """Smallest and largest of the inputs that size a start."""
    inputs = [recipe_of(run, host).inputs for run in runs]
    return {name: _bounds(row[name] for row in inputs) for name in SETTINGS.domain}


# --- what differs between hosts and between versions ----------------------------------------------------------------------


def _phase_logs(runs: Iterable[RunRecord]) -> dict[str, dict[str, dict[str, float]]]:
    """Phase -> model -> host -> logarithm of the seconds, over models that all hosts ran in their main session."""
    logs: dict[str, dict[str, dict[str, float]]] = {}
    for name, host in HOSTS.items():
        for run in runs:
            if run.dataset == host.main_dataset:
                measured = dict(run.phases) | {"unattributed": run.unattributed_s or 0.0}
                for phase, seconds in measured.items():
                    if seconds > 0:
                        logs.setdefault(phase, {}).setdefault(run.model.name, {})[name] = math.log(seconds)
    return {
        phase: {model: row for model, row in models.items() if len(row) == len(HOSTS)} for phase, models in logs.items()
    }


def _transfer_spread(runs: Iterable[RunRecord]) -> dict[str, float]:
    """Standard deviation between hosts of the mean logarithm of each phase."""
    return {
        phase: rounded(np.std([np.mean([row[name] for row in models.values()]) for name in HOSTS], ddof=1))
        for phase, models in _phase_logs(runs).items()
    }


def _shape_spread(runs: Iterable[RunRecord]) -> dict[str, float]:
    """What one factor a phase cannot carry: standard deviation over models of the logarithm of one host's phase over the donor's."""
    spread = {}
    for phase, models in _phase_logs(runs).items():
        ratios = [[row[name] - row[DONOR] for row in models.values()] for name in HOSTS if name != DONOR]
        spread[phase] = rounded(np.sqrt(np.mean([np.var(values, ddof=1) for values in ratios])))
    return spread


def _peculiarities(fit: HostFit, runs: Iterable[RunRecord], numbers: Host) -> dict[str, dict[str, float]]:
    """Structure of a model -> phase -> logarithm of measured over fitted, over its runs with the default coefficients."""
    logs: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for o in observe(run, numbers, SETTINGS.own):
            factor = fit.sessions.get((o.term.name, o.session), 1.0) * o.predicted(
                fit.sets[o.term.name, o.variant].values
            )
            if o.variant == "default" and o.seconds > 0.05 and factor > 0:
                phases = logs.setdefault(run.model.structure, {})
                phases.setdefault(o.term.name, []).append(math.log(o.seconds / factor))
    return {model: {phase: float(np.mean(v)) for phase, v in phases.items()} for model, phases in logs.items()}


def _persistence(runs: Iterable[RunRecord]) -> dict[str, float]:
    """Phase -> share of a model's peculiarity on one host that is found on another: regression through the origin, in [0, 1]."""
    found = {name: _peculiarities(fit_published(name, runs), _main_runs(name, runs), host_of(name)) for name in HOSTS}
    shares = {}
    for phase in sorted({phase for models in found.values() for phases in models.values() for phase in phases}):
        pairs = [
            (found[a][model][phase], found[b][model][phase])
            for a in HOSTS for b in HOSTS if a != b
            for model in found[a]
            if phase in found[a][model] and phase in found[b].get(model, {})
        ]  # fmt: skip
        size = sum(x * x for x, _ in pairs)
        shares[phase] = min(1.0, max(0.0, sum(x * y for x, y in pairs) / size)) if size else 0.0
    return shares


def _model_effects(
    fit: HostFit, runs: Iterable[RunRecord], without: str | None, numbers: Host, persistence: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What is peculiar to each measured model, as far as it persists from host to host."""
    kept = [run for run in runs if run.model.name != without]
    return {
        model: {
            phase: rounded(math.exp(persistence[phase] * log))
            for phase, log in phases.items()
            if persistence.get(phase)
        }
        for model, phases in sorted(_peculiarities(fit, kept, numbers).items())
    }


def _misfit(reports: Iterable[HeldOutReport]) -> dict[str, float]:
    """Relative error of each phase for models that the fit had not seen, as a standard deviation: nine in ten lie within 1.645 of it."""
    errors: dict[str, list[float]] = {}
    for report in reports:
        for row in report.rows:
            for phase, error in row.phase_errors.items():
                errors.setdefault(phase, []).append(abs(error))
    return {phase: rounded(float(np.quantile(values, 0.9)) / 1.645) for phase, values in sorted(errors.items())}


def _one_run_spread(runs: Iterable[RunRecord], donor: Profile) -> float:
    """Root mean square of the errors of totals on the other hosts, each calibrated by one run and tried on all others; widened,
    as they are few."""
    errors = []
    for name in HOSTS:
        own = _main_runs(name, runs) if name != DONOR else []
        for run in own:
            profile = calibrate([run], donor, held_out=False).profile
            errors += [total_error(other, profile) or 0.0 for other in own if other.model.name != run.model.name]
    return rounded(SMALL_SAMPLE * float(np.sqrt(np.mean(np.square(errors)))))


def _session_spread(fit: HostFit) -> tuple[int, dict[str, float]]:
    """Number of sessions on the donor's host; root mean square of the logarithm of their factors, by phase."""
    logs: dict[str, list[float]] = {}
    for (term, _), factor in fit.sessions.items():
        if factor > 0:
            logs.setdefault(term, []).append(math.log(factor))
    spread = {term: rounded(np.sqrt(np.mean(np.square(values)))) for term, values in sorted(logs.items())}
    return len({session for _, session in fit.sessions}) + 1, spread


def _version_effects(runs: Iterable[RunRecord], fit: HostFit) -> tuple[tuple[VersionEffect, ...], float]:
    """Factors on the phases by engine version, and the spread between neighbouring versions.

    One model ran through all versions; its run at the anchor version stands for the profile's own version, so that what
    is peculiar to the model cancels: factor = (measured / predicted) at the version over the same at the anchor. Phases
    that a version does not log share the factor of what is left of its wall time. The load is left out: it depends on
    the file format of that model.
    """
    series = [run for run in runs if run.dataset == SETTINGS.versions]
    series.sort(key=lambda run: parse_version(run.engine.version or ""))
    anchor = next(run for run in series if run.engine.version == SETTINGS.anchor)
    base = _parts(anchor, fit)
    effects, totals = [], []
    for run in series:
        parts = _parts(run, fit)
        totals.append(math.log((run.wall_s or 0.0) / sum(parts.predicted.values())))
        scales = _scales(parts, base, run.wall_s, anchor.wall_s) if run is not anchor else {}
        effects.append(
            VersionEffect(
                version=run.engine.version or "",
                generation=run.engine.resolve(run.model, run.hardware).generation,
                scales={str(phase): rounded(scales[phase]) for phase in PHASES if phase in scales},
                source=f"{run.model.name} on {DONOR}",
            )
        )
    return tuple(effects), rounded(np.sqrt(np.mean(np.diff(totals) ** 2)))


class _Parts(NamedTuple):
    """Phases of one run, measured and predicted."""

    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    variants: Mapping[str, str]

    def ratio(self, phases: Iterable[str]) -> float:
        """Measured over predicted."""
        found = list(phases)
        return sum(self.measured[phase] for phase in found) / sum(self.predicted[phase] for phase in found)


def _scales(parts: _Parts, base: _Parts, wall_s: float | None, base_wall_s: float | None) -> dict[str, float]:
    """Phase -> its factor over the same phase at the anchor."""
    scales = {
        phase: parts.ratio([phase]) / base.ratio([phase])
        for phase in parts.measured.keys() & base.measured.keys() - {"weight_load"}
        # A compile from nothing says little about a load from the cache, and the other way round.
        if phase != "graph_compile" or parts.variants[phase] == base.variants[phase]
    }
    # What neither row nor switch explains: the rest of the wall time, over the same phases at the anchor.
    rest = [phase for phase in parts.predicted if phase not in parts.measured and phase != "weight_load"]
    if rest and wall_s is not None and base_wall_s is not None:
        load = 0.0 if "weight_load" in parts.measured else base.measured["weight_load"]
        left = wall_s - sum(parts.measured.values()) - load
        named = [phase for phase in rest if phase in base.measured]
        others = [phase for phase in base.predicted if phase not in base.measured and phase in rest]
        at_anchor = sum(base.measured[phase] for phase in named)
        at_anchor += base_wall_s - sum(base.measured.values()) if others else 0.0
        predicted = sum(base.predicted[phase] for phase in (*named, *others))
        own = left / sum(parts.predicted[phase] for phase in rest)
        scales |= dict.fromkeys(rest, own / (at_anchor / predicted))
    return scales


def _parts(run: RunRecord, fit: HostFit) -> _Parts:
    start = recipe_of(run, host_of(DONOR))
    predicted, variants = {}, {}
    for term in TERMS.values():
        sets = {variant: entry for (name, variant), entry in fit.sets.items() if name == term.name}
        if sets and term.name not in start.off:
            variants[term.name] = variant = next((key for key in start.variants if key in sets), "default")
            inputs = (start.inputs[name] for name in term.inputs)
            predicted[term.name] = float(term.function(*inputs, **sets[variant].values))
    return _Parts({name: seconds for name, seconds in run.phases.items() if seconds > 0}, predicted, variants)


if __name__ == "__main__":
    raise SystemExit(main())
