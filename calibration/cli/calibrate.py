"""Commands that calibrate hosts; ``startup-model`` finds them through the entry point ``startup_model.commands``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.errors import ConfigError

if TYPE_CHECKING:
    from calibration.fit.calibrate import Calibration
    from calibration.runs.record import RunRecord
    from startup_model.hardware import HardwareConfig

__all__ = ["calibrate_command", "validate_command"]

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
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def calibrate_command(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", help="Profile to write.")],
    name: Annotated[str, typer.Option("--name", help="Name of the profile.")] = "host",
    hardware: HardwareOption = None,
    prior: PriorOption = "nearest",
    dataset: DatasetOption = None,
    allow_mixed_hosts: Annotated[
        bool, typer.Option("--allow-mixed-hosts", help="Fit runs of several hosts as if they were one.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the profile of a host from profiled runs: one is enough to begin with."""
    from calibration.fit.calibrate import calibrate

    records = _read(runs, hardware, dataset)
    done = calibrate(records, _prior(prior), name=name, allow_mixed_hosts=allow_mixed_hosts)
    done.profile.save(out)
    if as_json:
        report = done.report._asdict() | {"next_runs": [run._asdict() for run in done.next_runs]}
        _print_json({"profile": str(out), "report": report, "held_out": done.profile.held_out.errors})
        return
    _print_calibration(done, out)


def validate_command(
    runs: RunsArgument,
    profile: Annotated[
        str | None, typer.Option("--profile", help="Judge this profile as it is, instead of fitting anew.")
    ] = None,
    by: Annotated[
        str,
        typer.Option("--by", help="What is left out: model, host, dataset, or an engine setting such as quantization."),
    ] = "model",
    hardware: HardwareOption = None,
    prior: PriorOption = "nearest",
    dataset: DatasetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Errors of predictions for groups of runs that the fit has not seen."""
    from calibration.fit.validate import cross_validate, judge

    records = _read(runs, hardware, dataset)
    given = _prior(profile) if profile is not None else None
    if profile is not None and (given is None or given == "none"):
        raise ConfigError("--profile", profile, "it is no profile", "give a file or the name of a reference")
    report = (
        judge(records, given)
        if given is not None and given != "none"
        else cross_validate(records, by, prior=_prior(prior))
    )
    if as_json:
        phases = {name: errors._asdict() for name, errors in report.per_phase.items()}
        totals = {"mape": report.mape, "max_error": report.max_error, "r2": report.r2, "coverage": report.coverage}
        _print_json(totals | {"per_phase": phases, "baselines": dict(report.baselines), "runs": len(report.rows)})
        return
    typer.echo(report.table())
    explained = "" if math.isnan(report.r2) else f"R2 {report.r2:.3f}; "
    typer.echo(f"{explained}{report.coverage:.0%} of totals within their 90% interval")
    if report.by_profile:
        typer.echo("the profile as it is: errors on runs that it was fitted on say little about other models")
    for name, errors in report.per_phase.items():
        explained = "" if math.isnan(errors.r2) else f"  R2 {errors.r2:6.3f}"
        typer.echo(
            f"  {name:20s} mean {errors.mape:7.2%}  largest {errors.max_error:7.2%}{explained}  runs {errors.runs}"
        )


def _read(paths: Sequence[Path], hardware: str | None, dataset: str | None) -> list[RunRecord]:
    from calibration.runs.read import read_runs
    from startup_model.predictor import as_hardware

    node: HardwareConfig | None = as_hardware(hardware) if hardware is not None else None
    records = [record for path in paths for record in read_runs(path, hardware=node)]
    if dataset is not None:
        known = sorted({record.dataset for record in records})
        records = [record for record in records if record.dataset == dataset]
        if not records:
            raise ConfigError(
                "--dataset", dataset, "no run has it", f"known: {', '.join(filter(None, known)) or 'none'}"
            )
    return records


def _prior(text: str) -> Any:
    """A profile, None for the nearest reference, or "none"."""
    from startup_model.predictor import as_profile

    return {"nearest": None, "none": "none"}[text] if text in ("nearest", "none") else as_profile(text)


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(_finite(data), indent=2, ensure_ascii=False, default=list, allow_nan=False) + "\n")


def _finite(data: Any) -> Any:
    """The same with null for what is no number, which JSON does not have."""
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _print_calibration(done: Calibration, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="coefficients (those of variants that no run had are borrowed and not shown)", title_justify="left"
    )
    table.add_column("coefficient", overflow="fold")
    for heading in ("value", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("unit", "source"):
        table.add_column(heading, no_wrap=True)
    for term, variants in done.profile.coefficients.items():
        for variant, entries in variants.items():
            if variant != "default" and not any(entry.source == "fitted" for entry in entries.values()):
                continue
            for name, entry in entries.items():
                error = "" if entry.std_error is None else f"{entry.std_error:.2g}"
                label = f"{term}.{name}" + ("" if variant == "default" else f" ({variant})")
                table.add_row(label, f"{entry.value:.4g}", error, entry.unit, entry.source)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(done.report.text(), soft_wrap=True)
    errors = done.profile.held_out.errors
    if errors:
        mean = sum(map(abs, errors.values())) / len(errors)
        worst = max(errors.items(), key=lambda item: abs(item[1]))
        console.print(
            f"models left out of the fit: mean absolute error {mean:.2%}, worst {worst[1]:+.2%} ({worst[0]})",
            soft_wrap=True,
        )
    for run in done.next_runs:
        console.print(
            f"to profile next: {run.model}, page cache {run.page_cache}, compile cache {run.compile_cache}: "
            f"spread {run.spread_now:.2%} -> {run.spread_then:.2%}",
            soft_wrap=True,
        )
    console.print(f"written: {out}", soft_wrap=True)
