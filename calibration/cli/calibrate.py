"""Commands that fit the profile of a host, and judge fits by what they have not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.cli.options import JsonOption, PlotOption
from startup_model.cli.terminal import console_of, echo, print_json, table_of
from startup_model.errors import ConfigError, wrong_type

if TYPE_CHECKING:
    from calibration.fit.calibrate import Calibration
    from calibration.fit.validate import HeldOutReport
    from calibration.runs.record import RunRecord

RunsArgument = Annotated[
    list[Path], typer.Argument(help="Files or folders of runs: JSONL, YAML, CSV, JSON of other tools.")
]
HardwareOption = Annotated[
    str | None,
    typer.Option("--hardware", help="Node of the runs (preset or JSON file), where the files do not say it."),
]
PriorOption = Annotated[
    str, typer.Option("--prior", help="Profile file, name of a reference, 'nearest', or 'none' for the runs alone.")
]
DatasetOption = Annotated[str | None, typer.Option("--dataset", help="Only the runs of this data set.")]
OutOption = Annotated[Path, typer.Option("--out", help="Profile to write.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the profile.")]
MixedOption = Annotated[
    bool, typer.Option("--allow-mixed-hosts", help="Fit runs of several hosts as if they were one.")
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="Judge this profile as it is, instead of fitting anew.")
]
ByOption = Annotated[
    str, typer.Option("--by", help="What is left out: model, host, dataset, or an engine setting such as quantization.")
]


def calibrate_command(
    runs: RunsArgument,
    out: OutOption,
    name: NameOption = "host",
    hardware: HardwareOption = None,
    prior: PriorOption = "nearest",
    dataset: DatasetOption = None,
    allow_mixed_hosts: MixedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the profile of a host from profiled runs: one is enough to begin with."""
    from calibration.fit.calibrate import calibrate

    records = _read(runs, hardware, dataset)
    done = calibrate(records, _prior(prior), name=name, allow_mixed_hosts=allow_mixed_hosts)
    done.profile.save(out)
    if as_json:
        report = done.report._asdict() | {"next_runs": [run._asdict() for run in done.next_runs]}
        print_json({"profile": str(out), "report": report, "held_out": done.profile.held_out.errors})
    else:
        _print_calibration(done, out)


def validate_command(
    runs: RunsArgument,
    profile: ProfileOption = None,
    by: ByOption = "model",
    hardware: HardwareOption = None,
    prior: PriorOption = "nearest",
    dataset: DatasetOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Errors of predictions for groups of runs that the fit has not seen; what profiles remember of the models is not used."""
    from calibration.fit.validate import cross_validate, judge
    from startup_model.predictor import as_profile

    records = _read(runs, hardware, dataset)
    if profile in ("nearest", "none"):
        raise wrong_type("--profile", profile, "a file or the name of a reference profile")
    given = as_profile(profile)
    report = cross_validate(records, by, prior=_prior(prior)) if given is None else judge(records, given)
    if plot is not None:
        from startup_model import plots

        plots.save(plots.predicted_against_measured(report.rows), plot)
    if as_json:
        phases = {name: errors._asdict() for name, errors in report.per_phase.items()}
        totals = {"mape": report.mape, "max_error": report.max_error, "r2": report.r2, "coverage": report.coverage}
        print_json(totals | {"per_phase": phases, "baselines": dict(report.baselines), "runs": len(report.rows)})
    else:
        _print_report(report)


def _read(paths: Sequence[Path], hardware: str | None, dataset: str | None) -> list[RunRecord]:
    from calibration.runs.read import read_runs
    from startup_model.predictor import as_hardware

    node = None if hardware is None else as_hardware(hardware)
    records = [record for path in paths for record in read_runs(path, hardware=node)]
    kept = [record for record in records if dataset is None or record.dataset == dataset]
    if records and not kept:
        known = ", ".join(sorted({record.dataset for record in records if record.dataset})) or "none"
        raise ConfigError("--dataset", dataset, "no run has it", f"known: {known}")
    return kept


def _prior(text: str) -> Any:
    """A profile, None for the nearest reference, or "none"."""
    from startup_model.predictor import as_profile

    return {"nearest": None, "none": "none"}[text] if text in ("nearest", "none") else as_profile(text)


def _print_report(report: HeldOutReport) -> None:
    def explained(r2: float, after: str) -> str:
        return "" if math.isnan(r2) else f"R2 {r2:.3f}{after}"

    echo(report.table())
    echo(f"{explained(report.r2, '; ')}{report.coverage:.0%} of totals within their 90% interval")
    echo("without what profiles remember of models that they have measured")
    if report.by_profile:
        echo("the profile without refitting: errors on runs that it was fitted on say little about other models")
    for name, errors in report.per_phase.items():
        figures = f"mean {errors.mape:7.2%}  largest {errors.max_error:7.2%}"
        echo(f"  {name:20s} {figures}  {explained(errors.r2, '  ')}runs {errors.runs}")


def _print_calibration(done: Calibration, out: Path) -> None:
    title = "coefficients (those of variants that no run had are borrowed and not shown)"
    table = table_of(title, "coefficient", ">value", ">error", "|unit", "|source")
    for term, variants in done.profile.coefficients.items():
        for variant, entries in variants.items():
            if variant == "default" or any(entry.source == "fitted" for entry in entries.values()):
                for name, entry in entries.items():
                    label = f"{term}.{name}" + ("" if variant == "default" else f" ({variant})")
                    error = "" if entry.std_error is None else f"{entry.std_error:.2g}"
                    table.add_row(label, f"{entry.value:.4g}", error, entry.unit, entry.source)
    console_of().print(table)
    echo(done.report.text())
    if errors := done.profile.held_out.errors:
        mean = sum(map(abs, errors.values())) / len(errors)
        worst = max(errors, key=lambda name: abs(errors[name]))
        echo(f"models left out of the fit: mean absolute error {mean:.2%}, worst {errors[worst]:+.2%} ({worst})")
    for run in done.next_runs:
        states = f"page cache {run.page_cache}, compile cache {run.compile_cache}"
        echo(f"to profile next: {run.model}, {states}: spread {run.spread_now:.2%} -> {run.spread_then:.2%}")
    echo(f"written: {out}")
