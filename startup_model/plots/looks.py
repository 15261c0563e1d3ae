"""How things are drawn: the colours and hatches of phases, the colours and markers of lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from startup_model.phases import Phase

__all__ = [
    "BLUE",
    "GREEN",
    "LINES",
    "ORANGE",
    "PHASE_LOOKS",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "YELLOW",
    "Look",
    "look_of",
    "marker_of",
]

BLUE, SKY, GREEN, YELLOW, ORANGE, VERMILLION, PURPLE = (
    "#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7",
)  # fmt: skip
"""The palette of Okabe and Ito, "Color Universal Design" (2008), also in B. Wong, Nature Methods 8, 441 (2011)."""
_GREY = "#808080"
"""In the place of the palette's black, which a dark notebook would swallow."""


class Look(NamedTuple):
    """How a phase is drawn."""

    colour: str
    hatch: str = ""


PHASE_LOOKS: Mapping[Phase, Look] = {
    Phase.PROVISION: Look(BLUE, "///"),
    Phase.IMAGE_PULL: Look(ORANGE, "///"),
    Phase.CONTAINER_START: Look(GREEN, "///"),
    Phase.FRAMEWORK_BOOTSTRAP: Look(BLUE),
    Phase.WORKER_SPAWN: Look(SKY),
    Phase.TOKENIZER_LOAD: Look(PURPLE, "///"),
    Phase.MODEL_INIT: Look(YELLOW, "///"),
    Phase.WEIGHT_LOAD: Look(ORANGE),
    Phase.GRAPH_TRACE: Look(GREEN),
    Phase.GRAPH_COMPILE: Look(YELLOW),
    Phase.MEMORY_PROFILING: Look(VERMILLION),
    Phase.KV_CACHE_INIT: Look(SKY, "///"),
    Phase.GRAPH_CAPTURE: Look(PURPLE),
    Phase.API_READY: Look(VERMILLION, "///"),
    Phase.UNATTRIBUTED: Look(_GREY),
    Phase.FIRST_REQUEST: Look(_GREY, "///"),
}
"""One look for each phase, the same in all pictures. Phases in a row differ in lightness or in hatch, so that a print in grey tells them apart."""

_OTHER = Look(_GREY, "...")
"""Of a span that is no phase."""
LINES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)
"""Colours of lines, before the colour of the figure's own text; yellow is too faint for a line."""

_MARKERS = "os^Dv*Ppdh<>"
"""One for each line, so that colours may come twice."""


def look_of(name: str) -> Look:
    """The look of a phase, or of the first of several that are joined."""
    first = name.partition("+")[0].strip()
    return PHASE_LOOKS[Phase(first)] if first in list(Phase) else _OTHER


def marker_of(i: int) -> str:
    """The marker of a line, by its place among the lines."""
    return _MARKERS[i % len(_MARKERS)]
