"""What is run in the engine's own Python: its start, the import of the engine, a fixed piece of work, copies to a GPU."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from calibration.measure.server import Server, status_words
from calibration.probe.results import Budget, Found, Measurement
from startup_model.engines import DEFAULT_ENGINE, Engine, all_engines
from startup_model.errors import ConfigError, StartupModelError, one_line, wrong_type
from startup_model.files import is_file, is_folder

_SCRIPTS = Path(__file__).parent / "scripts"
_GRACE_S = _TICK_S = 0.1  # nothing is to be saved: what is still there when the answer has come is killed
_AFTER_END_S = 0.5  # in which the last of what a child has printed is read; its children may hold the pipe for ever
_MAX_PRINTED, _MAX_REASON = 2**20, 160


class Answer(NamedTuple):
    data: Mapping[str, Any] | None  # the JSON object on the last line that holds one; None when there is none
    problem: str  # why there is none; empty when there is one
    seconds: float  # wall time from its start to its end


class Interpreter(NamedTuple):
    """The Python that the engine runs in."""

    path: str
    version: tuple[int, int, int]

    @property
    def shown_version(self) -> str:
        return ".".join(map(str, self.version))

    def run(self, code: str, timeout_s: float) -> Answer:
        return ask([self.path, "-c", code], max(1.0, timeout_s))


def interpreter(python: str | os.PathLike[str] | None, timeout_s: float = 30.0) -> Interpreter:
    """The Python at a path or of a name on PATH; None: this one. Raises ConfigError when it is not there or is no Python."""
    remedy = "give the python of the engine's environment, such as venv/bin/python"
    given = sys.executable if python is None else os.fspath(python) if isinstance(python, str | os.PathLike) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise wrong_type("python", python, "a path", remedy)
    given = os.path.expanduser(given)  # noqa: PTH111  a bare name stays one
    path = None
    with contextlib.suppress(OSError, ValueError):  # a name that is too long
        path = shutil.which(given)
    if path is None:
        place = Path(given)
        problem = "a folder" if is_folder(place) else "cannot be executed" if is_file(place) else "no such program"
        raise ConfigError("python", given, problem, remedy)
    found = Interpreter(str(Path(path).absolute()), (0, 0, 0))  # links stay: an environment is found by the link
    answer = found.run("import json, sys; print(json.dumps({'version': list(sys.version_info[:3])}))", timeout_s)
    version = answer.data.get("version") if answer.data else None
    if not (isinstance(version, list) and len(version) == 3 and all(isinstance(part, int) for part in version)):
        problem = f"not a working Python interpreter ({answer.problem or 'no version'})"
        raise ConfigError("python", given, problem, remedy)
    return found._replace(version=(version[0], version[1], version[2]))


def ask(words: Sequence[str], timeout_s: float) -> Answer:
    """Run a program; it and all that it has started are gone when this returns or raises, or this process is killed.

    It is killed when time is up, or when it has printed more than 1 MiB.
    """
    end = time.monotonic() + timeout_s
    printed, problem = bytearray(), ""
    try:
        with Server(words, grace_s=_GRACE_S) as child:
            watch = _EndWatch(child)
            last = end
            while time.monotonic() < last:
                data = child.read(min(_TICK_S, max(0.0, last - time.monotonic())))
                if data is None:
                    break
                printed += data
                if len(printed) > _MAX_PRINTED:
                    problem = f"it prints without end (more than {_MAX_PRINTED} bytes)"
                    break
                if child.has_ended:
                    last = min(last, time.monotonic() + _AFTER_END_S)
                    if not data:
                        break
            if not problem and not child.has_ended:
                problem = f"not done after {timeout_s:.0f} s"
            seconds = watch.ended_at() - child.started
    except StartupModelError as error:
        return Answer(None, one_line(getattr(error, "problem", "") or str(error), _MAX_REASON), 0.0)
    lines, code = printed.decode("utf-8", "replace").splitlines(), child.exit_status
    found = _last_object(lines) if not problem and code == 0 else None
    if found is None and not problem:
        ends = [f": {line}" for line in lines if line.strip()][-1:]
        ending = f"exit status {code}" if code is not None and code >= 0 else f"ended {status_words(code)}"
        problem = one_line("".join([ending, *ends]) if code else "it printed no result", _MAX_REASON)
    return Answer(found, problem, seconds)


class _EndWatch(threading.Thread):
    """Notes the moment at which a child ends: its supervisor looks only now and then."""

    def __init__(self, child: Server) -> None:
        super().__init__(daemon=True)
        self._child = child
        self._at: float | None = None
        with contextlib.suppress(OSError, AttributeError):  # it has ended, or the platform has no such thing
            self._descriptor = os.pidfd_open(child.pid)
            self.start()

    def run(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            while not poll.poll(_TICK_S * 1e3) and not self._child.has_ended:
                pass
            self._at = time.monotonic()
        finally:
            os.close(self._descriptor)

    def ended_at(self) -> float:
        """When it ended, by the monotonic clock; now, where it has not."""
        if self.ident is not None and self._child.has_ended:
            self.join()
        return time.monotonic() if self._at is None else self._at


def _last_object(lines: Sequence[str]) -> dict[str, Any] | None:
    for line in reversed(lines):
        if line.startswith("{"):  # JSON of no other kind does
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(line)  # type: ignore[no-any-return]
    return None


def _numbers(values: object) -> list[float]:
    """A list of numbers above 0; empty when it is something else."""
    items = values if isinstance(values, list) else []
    found = [float(value) for value in items if isinstance(value, int | float) and value > 0]
    return found if len(found) == len(items) else []


START, FIRST, REPEATED = "python_start", "import_first", "import_repeated"
_STARTS, _IMPORTS, _MAX_START_S = 5, 3, 10.0
# Folders without an ``__init__.py`` have no origin: what happens to lie in the working folder is no engine.
_FIND = """
import importlib.util, json
print(json.dumps({{'found': next((name for name in {!r} if getattr(importlib.util.find_spec(name), 'origin', None)), None)}}))
"""
# Ends at once, so that taking the modules down costs no time of the probe.
_IMPORT = """
import time
begin = time.perf_counter()
import {package}
seconds = time.perf_counter() - begin
import json
print("\\n" + json.dumps({{"seconds": seconds}}), flush=True)
import os
os._exit(0)
"""


def engine_packages() -> dict[str, Engine]:
    """Package whose import a start waits for -> its engine, the default engine first."""
    engines = sorted(all_engines().values(), key=lambda engine: engine.name != DEFAULT_ENGINE)
    return {engine.launch.program: engine for engine in engines if engine.is_predicted and engine.launch}


def measure_imports(python: Interpreter, budget: Budget) -> Found:
    """Wall seconds of a start of Python that does nothing, of the first import of the engine, and of further ones.

    The first import reads what no page cache holds; further ones are what a warm host takes.
    """
    begin, part = time.monotonic(), budget.part(0.3, _MAX_START_S)
    starts: list[float] = []
    while len(starts) < _STARTS and not (starts and part.is_spent):
        answer = python.run("print('{}')", part.left)
        if answer.data is None:
            break
        starts.append(answer.seconds)
    words = f"Python {python.shown_version}, start to end, nothing to do"
    found = Found.warn(f"start of Python: not measured: {answer.problem}")
    if starts:
        found = Found((Measurement.of(START, starts, "s", words, time.monotonic() - begin),))
    if package := _package(python, budget):
        return found.joined(_imports(python, package, budget))
    names = ", ".join(_packages())
    reason = f"import: not measured: this Python has none of {names}; give the engine's (python=, --python)"
    return found.joined(Found.warn(reason))


def imported(found: Found) -> str | None:
    """The package whose import was measured; None where none was."""
    entry = next((entry for entry in found.measurements if entry.name in (FIRST, REPEATED)), None)
    return None if entry is None else entry.command.split(maxsplit=2)[1]


def _packages() -> tuple[str, ...]:
    """The first of them that the Python has is imported."""
    return (*engine_packages(), "torch", "numpy")


def _package(python: Interpreter, budget: Budget) -> str | None:
    answer = python.run(_FIND.format(_packages()), budget.left)
    name = answer.data.get("found") if answer.data else None
    return name if name in _packages() else None


def _imports(python: Interpreter, package: str, budget: Budget) -> Found:
    """The first import and, as long as another one fits into what is left, further ones."""
    begin, code = time.monotonic(), _IMPORT.format(package=package)
    first = python.run(code, budget.left)
    seconds = _inside(first)
    if not seconds:
        return Found.warn(f"import {package}: not measured: {first.problem or 'it printed no time'}")
    shown, taken = f"import {package} under Python {python.shown_version}", time.monotonic() - begin
    measured = Measurement.of(FIRST, seconds, "s", f"{shown}, as the page cache was found", taken)
    again: list[float] = []
    while len(again) < _IMPORTS - 1 and budget.left > 1.2 * first.seconds:
        if not (seconds := _inside(python.run(code, budget.left))):
            break
        again += seconds
    if not again:
        return Found((measured,), (f"import {package}: no time was left to repeat it",))
    return Found((measured, Measurement.of(REPEATED, again, "s", f"{shown}, again", time.monotonic() - begin - taken)))


def _inside(answer: Answer) -> list[float]:
    return _numbers([answer.data.get("seconds")]) if answer.data else []


KERNEL, SCORE = "python_kernel", "single_thread_score"
PROCESSOR = "processor_score"  # measured beside ``SCORE`` where the two differ: what an optimised build would have

CHECKSUM = 250717113  # of one repetition of the kernel, in every Python

REFERENCE_SECONDS = {(3, 9): 0.109, (3, 10): 0.106, (3, 11): 0.102, (3, 12): 0.113, (3, 13): 0.106}
"""CPU seconds of one repetition on an AMD EPYC 9354 (score 1.0), by version of Python, for optimised builds.

Anchor: no such machine was at hand. A Zen 3 server processor (EPYC Milan, 2.45 GHz base, a virtual machine) took 0.117 s in its quietest
moments with Debian's build of Python 3.11. Processors of that line score 0.85 to 0.9 in the table of this project; 0.87 was taken, so that the
reference is 0.87 x 0.117 s. Allow 10 % for that anchor. The other versions stand in the proportion of builds of one kind, measured side by
side there.
"""

PLAIN_BUILD = 1.37
"""Times as long as an optimised build a plain one takes (a shared library that was configured without ``--enable-optimizations``, as pyenv
makes it on request): Python 3.11 on one machine. An engine that runs in such a build starts slower: its score holds the factor, that of the
processor does not."""

_MAX_REPETITIONS, _MIN_VERSION, _BUSY = 20, (3, 9), 1.15
_MIN_TIMEOUT_S, _MIN_WAIT_S, _START_S = 10.0, 1.0, 0.5


def score_of(seconds: float, version: tuple[int, int], *, plain: bool = False) -> float:
    """Single-thread score from the CPU seconds of one repetition.

    Equation: score = reference seconds of the version × (1.37 for a plain build) / seconds; an EPYC 9354 has 1.0.
    A version without a reference has that of the nearest one.
    """
    nearest = min(max(version, min(REFERENCE_SECONDS)), max(REFERENCE_SECONDS))
    return REFERENCE_SECONDS[nearest] * (PLAIN_BUILD if plain else 1.0) / seconds


class Batch(NamedTuple):
    """Repetitions of the kernel, one right after the other."""

    times: tuple[float, ...]  # CPU seconds of each; none when something went wrong
    problem: str
    implementation: str  # CPython, say
    plain: bool  # whether this Python is a plain build
    seconds: float  # wall time spent


def run_kernel(python: Interpreter, budget: Budget, whole: Budget | None = None) -> Batch:
    """Repeat the kernel in a Python as long as the time lasts, twice at least. ``whole``: after which it is not waited for any more, whatever it does."""
    if python.version[:2] < _MIN_VERSION:
        return Batch((), f"the kernel needs Python 3.9 or newer, this is {python.shown_version}", "", False, 0.0)
    seconds = max(0.3, budget.left - _START_S)
    words = [python.path, "-I", "-S", str(_SCRIPTS / "kernel.py"), str(_MAX_REPETITIONS), f"{seconds:.1f}"]
    patience = max(_MIN_TIMEOUT_S, 3 * seconds)
    answer = ask(words, patience if whole is None else min(patience, max(_MIN_WAIT_S, whole.left)))
    data = answer.data or {}
    times = tuple(_numbers(data.get("seconds"))) if data.get("checksum") == CHECKSUM else ()
    problem = "" if times else answer.problem or "the kernel printed something else"
    return Batch(times, problem, one_line(str(data.get("implementation")), 40), bool(data.get("plain")), answer.seconds)


def judge_score(python: Interpreter, batches: Sequence[Batch], *, is_engines: bool) -> Found:
    """Seconds of the kernel and the score: the smallest CPU time of all repetitions in all batches.

    is_engines: whether the engine runs in this Python. Then a plain build counts, because starts are as slow as that: ``single_thread_score`` is 1 / 1.37 of
    ``processor_score``. Else nothing is known of the engine's build, and the score is the processor's.

    CPU time, so that waiting for a core does not count; the smallest, because whatever else happens on the machine (a busy sibling thread, shared
    caches, a lower clock) only lengthens a repetition: the median of a busy host says how busy it was. Batches at several moments, because such
    a disturbance lasts for seconds.
    """
    times = [seconds for batch in batches for seconds in batch.times]
    if not times:
        return Found.warn(f"single-thread score: not measured: {batches[0].problem if batches else 'no time'}")
    told = [batch for batch in batches if batch.times]
    plain = any(batch.plain for batch in batches)
    quickest, moments = min(times), f"{len(told)} moment{'s' if len(told) > 1 else ''}"
    processor = score_of(quickest, python.version[:2], plain=plain)
    ratio = f"reference seconds of {'a plain build' if plain else 'an optimised build'} / the above"
    words = f"kernel.py under Python {python.shown_version} at {moments}, CPU seconds of the quickest"
    took = sum(batch.seconds for batch in batches)
    measured = [Measurement.of(KERNEL, times, "s", words, took, value=quickest)]
    scores = [(SCORE, processor, ratio)]
    means = "the score is the processor's; give the engine's Python (python=, --python), whose build counts"
    if plain and is_engines:
        means = "an engine in it starts as much slower, and the score says so"
        same = "reference seconds of an optimised build / the same"
        scores = [(PROCESSOR, processor, ratio), (SCORE, processor / PLAIN_BUILD, same)]
    measured += [Measurement.of(name, times, "1", words, value=value) for name, value, words in scores]
    implementation, busy = told[0].implementation, median(times) / quickest
    score = "single-thread score:"
    warnings = {
        f"{score} no reference for Python {python.shown_version}; that of the nearest version was taken": python.version[
            :2
        ]
        not in REFERENCE_SECONDS,
        f"{score} the reference is CPython's, this is {implementation}": implementation != "CPython",
        f"this Python is a plain build and takes about {PLAIN_BUILD:.2f} times as long as an optimised one: {means}": plain,
        f"{score} the host was busy (median {busy:.2f} times the quickest), the score may be too low; probe again when it is quiet": busy
        > _BUSY,
    }
    return Found(tuple(measured), tuple(text for text, holds in warnings.items() if holds))


LINK, ON_DEVICE = "host_to_device", "device_copy"
_COPIES = {  # name -> key of what the script prints, and what was run
    LINK: ("to_device", "torch copies from pinned memory to {}"),
    ON_DEVICE: ("on_device", "torch copies within the memory of {}, reads and writes counted"),
}


def measure_device(python: Interpreter, budget: Budget, *, has_gpu: bool) -> Found:
    """Bandwidth in B/s of copies to one GPU and on it, the median; nothing, with the reason, where there is none or no torch."""
    begin, data, problem = time.monotonic(), None, "this host has no GPU"
    if has_gpu:
        data, problem, _ = python.run((_SCRIPTS / "device.py").read_text(encoding="utf-8"), budget.left)
    if data is None or "absent" in data:
        reason = problem if data is None else one_line(str(data["absent"]), _MAX_REASON)
        return Found.warn(f"host to device: not measured: {reason}")
    took, size = time.monotonic() - begin, data.get("size")
    device = one_line(str(data.get("device", "the GPU")), 60)
    moved = float(size) if isinstance(size, int) else None
    found = Found()
    for name, (key, words) in _COPIES.items():
        if rates := _numbers(data.get(key)):
            seconds = took if name == LINK else 0.0
            entry = Measurement.of(name, rates, "B/s", words.format(device), seconds, size=moved)
            found = found.joined(Found((entry,)))
        elif name == LINK:
            found = Found.warn("host to device: not measured: the script printed something else")
    return found
