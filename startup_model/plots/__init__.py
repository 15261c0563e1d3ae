"""Pictures of predictions, sweeps and logs: axes in, axes out. matplotlib (extra ``notebook``) is imported when the first one is drawn.

Without axes each function makes a figure with room for all labels; axes of your own have it with ``plt.subplots(layout="constrained")``. Colours of text and
background are those of the axes, dark styles included; nothing is shown, and no setting of matplotlib is changed.
"""

from __future__ import annotations

from startup_model.plots.canvas import PHASE_LOOKS, Look, save
from startup_model.plots.checks import predicted_against_measured, tornado
from startup_model.plots.starts import timeline, waterfall
from startup_model.plots.sweeps import interval_fan, sweep_lines

__all__ = [
    "PHASE_LOOKS", "Look", "interval_fan", "predicted_against_measured", "save", "sweep_lines", "timeline", "tornado", "waterfall",
]  # fmt: skip
