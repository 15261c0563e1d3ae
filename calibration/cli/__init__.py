"""Commands that measure and calibrate; ``startup-model`` finds them through the entry point ``startup_model.commands``."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    from calibration.cli import calibrate, gate, logs, measure, probe, watch

    app.command("calibrate")(calibrate.calibrate_command)
    app.command("validate")(calibrate.validate_command)
    app.command("parse")(logs.parse_command)
    app.command("watch")(watch.watch_command)
    measure.register(app)
    probe.register(app)
    gate.register(app)
