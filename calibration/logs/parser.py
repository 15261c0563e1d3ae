"""The parser: bytes or lines in, events out, one ``ParsedStartup`` per start at the end.

A log is scanned block by block for the literal pieces of the tables' templates, and only the lines that hold one are taken apart: work grows
with the length of the log, memory does not.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import IO, NamedTuple

from calibration.logs.assembly import assemble
from calibration.logs.events import Event, Failure, Mark, Row
from calibration.logs.lines import STAMP_ANCHORS, Line, split_line
from calibration.logs.patterns import Template, template
from calibration.logs.secrets import without_secrets
from calibration.logs.start import LONGEST_KEPT, Start
from calibration.logs.startup import ParsedStartup
from calibration.logs.tables import COMMON_FAILURES, ENGINES, SHARED_ROWS
from startup_model.errors import ConfigError, InputFileError, one_line, shown
from startup_model.files import is_file, is_folder, open_regular
from startup_model.phases import Phase

__all__ = ["StartupLogParser", "parse_log", "parse_starts", "read_chunks"]

_WINDOW = 2**16
"""Bytes that are scanned at a time."""
_LONGEST_PIECE = 2**20
"""A line longer than this is taken in pieces."""
_OVERLAP = 2**13
_BEFORE, _BEHIND = 2**12, 2**17
"""Bytes of a long line around a literal that are looked at."""
_LINES_AHEAD = 2000
_MOST_SCANS = 1
"""Times that one stretch is scanned for a part of the tables, before everything is looked for."""
_MOST_STARTS = 1000
_MOST_RANKS_KEPT = 20_000
_MOST_CHANNELS = 64
_SHORT = 2**11
"""Bytes up to which a stretch is looked up in an index, instead of being searched for every literal."""
_SEVEN = 7
"""Length from which a literal holds a whole group of four bytes at any alignment."""
_MOST_EVENTS = 100_000
"""Events of one ``feed`` that are given out."""
_CHUNK = 2**20
_HEAD = 512
"""Bytes from which the encoding is told."""
_MOST_JUNK = 2**26
"""Bytes of no text without a known line after which reading ends."""
_PATIENCE = 2**22
"""Bytes without a single known line after which only lines that begin a start are looked for."""
_DAY = 86400.0
_WHAT = "the start-up log of an inference server"


class _Rule(NamedTuple):
    """A row or a failure of a table, ready to be searched."""

    engine: str
    """Empty for rows that several engines share."""
    row: Row | None
    failure: Failure | None
    compiled: Template
    order: int
    """Place in the tables: of several rows for one event the first that fits a line counts."""


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    tables: list[tuple[str, tuple[Row, ...], tuple[Failure, ...]]] = [("", SHARED_ROWS, COMMON_FAILURES)]
    tables += [(engine.name, engine.rows, engine.failures) for engine in ENGINES.values()]
    rules: list[_Rule] = []
    for name, rows, failures in tables:
        rules += [_Rule(name, row, None, template(row.text), len(rules) + i) for i, row in enumerate(rows)]
        rules += [_Rule(name, None, fail, template(fail.text), len(rules) + i) for i, fail in enumerate(failures)]
    return tuple(rules)


_by_order = attrgetter("order")


_BEGINNINGS = frozenset({"opens", "begins", "settings"})
"""Marks of lines that may begin another start, of whatever engine."""


class _Literals(NamedTuple):
    """The literals to look for, and an index of those that are long enough."""

    all: tuple[tuple[bytes, tuple[_Rule, ...]], ...]
    short: tuple[tuple[bytes, tuple[_Rule, ...]], ...]
    """Literals that are not in the index."""
    by_group: Mapping[bytes, tuple[tuple[bytes, tuple[_Rule, ...]], ...]]
    """Four bytes -> the literals that hold them."""
    keys: frozenset[bytes]

    def present(self, block: bytes, begin: int, end: int) -> Iterable[tuple[bytes, tuple[_Rule, ...]]]:
        """Literals that a stretch may hold. Of a short one every fourth group of four bytes is looked up: a literal of seven bytes or more has one of its
        own four at such a place, wherever it stands."""
        if end - begin > _SHORT:
            return self.all
        groups = {block[i : i + 4] for i in range(begin, end - 3, 4)}
        found = self.keys.intersection(groups)
        return [*self.short, *(entry for group in found for entry in self.by_group[group])]


@lru_cache(maxsize=64)
def _literals(engine: str | None, waiting: bool, progress: bool) -> _Literals:
    """Literal -> rules, of one engine (None: of all). ``waiting``: only what matters once all starts are ready."""
    found: dict[bytes, list[_Rule]] = {}
    for rule in _rules():
        if _applies(rule, engine, waiting=waiting) and (progress or rule.row is None or rule.row.mark != "progress"):
            found.setdefault(rule.compiled.literal.encode(), []).append(rule)
    entries = tuple((literal, tuple(rules)) for literal, rules in found.items())
    counts = Counter(group for literal, _ in entries for group in {literal[i : i + 4] for i in range(len(literal) - 3)})
    index: dict[bytes, list[tuple[bytes, tuple[_Rule, ...]]]] = {}
    for entry in entries:
        literal = entry[0]
        places = range(len(literal) - _SEVEN + 1)
        # Four groups in a row, those that the fewest other literals have.
        best = min(places, key=lambda o: sum(counts[literal[i : i + 4]] for i in range(o, o + 4)), default=None)
        if best is not None:
            for group in {literal[i : i + 4] for i in range(best, best + 4)}:
                index.setdefault(group, []).append(entry)
    short = tuple(entry for entry in entries if len(entry[0]) < _SEVEN)
    return _Literals(entries, short, {group: tuple(held) for group, held in index.items()}, frozenset(index))


def _applies(rule: _Rule, engine: str | None, *, waiting: bool) -> bool:
    """Whether a line that fits the rule can say anything, in a log that is surely of ``engine`` (None: not sure)."""
    mark = rule.row.mark if rule.row else ""
    if engine is not None and rule.engine not in ("", engine) and mark not in ("begins", "settings"):
        return False
    late = rule.failure is not None and rule.failure.even_when_ready
    return not waiting or late or mark in _BEGINNINGS or mark == "over"


class _Channel:
    """What one container or pod has printed: starts, one after the other."""

    def __init__(self) -> None:
        self.start = Start()
        self.stamps: dict[str, tuple[float, str]] = {}
        """Clock -> the last stamp and how it was printed."""
        self.offsets: dict[str, float] = {}
        """Clock -> seconds of the years that went by."""
        self.is_leap_year = False
        self.count = 0
        """Starts that are over."""

    def time(self, line: Line) -> float | None:
        """The stamp of a line on a clock that runs on over New Year."""
        if line.stamp is None:
            return None
        value = line.stamp + self.offsets.get(line.clock, 0.0)
        if line.clock == "vllm":
            self.is_leap_year = self.is_leap_year or line.stamped.startswith("02-29")
            if self.is_leap_year and line.stamped[:2] > "02":
                value += 86400.0
        last = self.stamps.get(line.clock)
        if last is not None and line.clock == "sglang" and line.stamp < _DAY and value < last[0] - _DAY / 2:
            self.offsets[line.clock] = self.offsets.get(line.clock, 0.0) + _DAY  # stamps without a date
            value += _DAY
        if last is not None and line.clock == "vllm":
            year = 365 * 86400.0
            if value < last[0] - year / 2:
                self.offsets[line.clock] = self.offsets.get(line.clock, 0.0) + year
                value += year
            elif value > last[0] + year / 2:
                value -= year  # a straggler of the old year
        if last is None or value >= last[0] or value < last[0] - 60:
            self.stamps[line.clock] = (value, line.stamped)
        return value


class StartupLogParser:
    """Reads a log as it grows: ``feed`` what has arrived, get the events in it; ``finish`` for the starts.

    ``progress``: also the events of progress bars; ``events=False``: only the starts at the end are wanted; ``by_carrier``: times by the stamps of what carried
    the log, which may be finer than the engine's. Nothing is raised for any content; memory is bounded whatever is fed.
    """

    def __init__(self, *, progress: bool = False, events: bool = True, by_carrier: bool = False) -> None:
        self.recognised = 0
        """Of these, lines that a table knows."""
        self.bytes = 0
        self._lines = 0
        """Lines that were scanned."""
        self._last_byte = b"\n"
        self.dropped_starts = 0
        """Starts beyond the thousand that are kept."""
        self._progress = progress
        self._wants_events = events
        self._by_carrier = by_carrier
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._watched: _Literals | None = None
        """What lines are looked at for by now; None after a scan."""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._began = False
        self._head = b""
        self._digest = hashlib.sha256()
        self._channels: dict[str, _Channel] = {}
        self._last_channel = ""
        self._done: list[ParsedStartup] = []
        self._made = 0
        self._controls = 0
        self._looked_ahead = 0
        self._scanned = 0
        self._last_known = 0
        self._ranks_kept = 0
        self._notes: set[str] = set()
        self._events: list[Event] = []

    # --- feeding --------------------------------------------------------------------------------------------------------

    def feed(self, data: str | bytes) -> list[Event]:
        """The events that ``data`` completes. Lines may arrive in pieces of any size."""
        if not isinstance(data, str | bytes | bytearray | memoryview):
            raise ConfigError("data", data, "it is no piece of a log", "feed text or bytes")
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
        if self._says_nothing(raw):
            self._keep(raw)
            return []
        for offset in range(0, len(raw), _CHUNK):
            self._take(raw[offset : offset + _CHUNK])
        return self._emit()

    def finish(self) -> list[ParsedStartup]:
        """All starts, in the order in which they began, those without any recognised line left out."""
        if self._head:
            self._began = True
            raw, self._head = self._head, b""
            self._take(raw)
        self._catch_up_with_kept()
        if self.bytes and self._last_byte != b"\n":
            self._lines += 1
        return list(self._assembled())

    def starts(self) -> list[ParsedStartup]:
        """The starts as far as they are known by now."""
        if self._last_byte == b"\n":
            self._catch_up_with_kept()
        return list(self._assembled())

    @property
    def lines(self) -> int:
        """Lines fed so far."""
        return self._lines + sum(part.count(b"\n") for part in self._parts)

    @property
    def is_binary(self) -> bool:
        """Whether what was fed looks like no text at all."""
        return self._controls > 0.03 * min(self.bytes, _WINDOW)

    def _says_nothing(self, raw: bytes) -> bool:
        """Whether ``raw`` is a whole line that no table knows: it is kept until there are more of them, or one that says something."""
        if not (raw.endswith(b"\n") and len(raw) <= _SHORT and self._last_byte == b"\n" and self._began):
            return False
        if self._decoder is not None or self._waiting_bytes + len(raw) > _WINDOW:
            return False
        if self._watched is None:
            self._watched = _literals(self._engine(), self._waiting(), self._progress)
        return not any(literal in raw for literal, _ in self._watched.present(raw, 0, len(raw)))

    def _keep(self, raw: bytes) -> None:
        self._digest.update(raw)
        self.bytes += len(raw)
        self._last_byte = raw[-1:] or self._last_byte
        self._parts.append(raw)
        self._waiting_bytes += len(raw)

    def _catch_up_with_kept(self) -> None:
        """Scan what was kept."""
        if self._parts:
            buffer, self._parts, self._waiting_bytes = b"".join(self._parts), [], 0
            self._scan(buffer)

    def _take(self, raw: bytes) -> None:
        if not self._began:
            self._head += raw
            if len(self._head) < _HEAD and b"\n" not in self._head:
                return  # too little to tell the encoding from
            raw, self._head = self._head, b""
            self._begin(raw)
        if self._decoder is not None:
            raw = self._decoder.decode(raw).encode("utf-8", "replace")
        self._keep(raw)
        if b"\n" not in raw and b"\r" not in raw and self._waiting_bytes <= _LONGEST_PIECE:
            return  # the line goes on
        buffer = b"".join(self._parts)
        cut = max(buffer.rfind(b"\n"), buffer.rfind(b"\r")) + 1
        if len(buffer) - cut > _LONGEST_PIECE:
            limit = len(buffer) - _OVERLAP
            cut = (buffer.rfind(b" ", cut, limit) + 1) or limit
        self._parts, self._waiting_bytes = [buffer[cut:]], len(buffer) - cut
        self._scan(buffer[:cut])

    def _begin(self, raw: bytes) -> None:
        self._began = True
        head = raw[:_WINDOW]
        marks = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
        encoding = next((name for mark, name in marks.items() if head.startswith(mark)), None)
        even, odd = head[0:400:2], head[1:400:2]
        zeros = (even.count(0) / max(len(even), 1), odd.count(0) / max(len(odd), 1))
        if encoding is None and len(head) >= 8 and max(zeros) > 0.7 and min(zeros) < 0.3:
            encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
        if encoding is not None:
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        else:
            self._controls = sum(head.count(code) for code in (*range(8), *range(14, 27), 28, 29, 30, 31))

    # --- scanning -------------------------------------------------------------------------------------------------------

    def _scan(self, block: bytes) -> None:
        position, length, self._watched = 0, len(block), None
        while position < length:
            stop = min(position + _WINDOW, length)
            if stop < length:
                end = block.rfind(b"\n", position, stop) + 1
                if not end:
                    end = block.find(b"\n", stop) + 1 or length
                    end = min(end, position + _LONGEST_PIECE)
                stop = end
            self._window(block, position, stop)
            self._scanned += stop - position
            position = stop

    def _window(self, block: bytes, begin: int, end: int) -> None:
        """Scan a stretch of whole lines; once more from where more has to be looked for, because another start began."""
        counted, first_line, position = begin, self._lines, begin
        if not self._any_stamp():
            self._find_first_stamp(block, begin, end)
        for attempt in range(_MOST_SCANS + 1):
            engine, waiting = (self._engine(), self._waiting()) if attempt < _MOST_SCANS else (None, False)
            hits = self._hits(block, position, end, engine, waiting=waiting)
            index = 0
            while index < len(hits):
                place = hits[index][0]
                left = max(block.rfind(b"\n", position, place) + 1, position)
                left = max(block.rfind(b"\r", left, place) + 1, left, place - _BEFORE)
                right = block.find(b"\n", place, end)
                right = end if right < 0 else right
                inner = block.find(b"\r", place, right)
                right = min(right if inner < 0 else inner, place + _BEHIND)
                found: set[_Rule] = set()
                while index < len(hits) and hits[index][0] < right:
                    found.update(hits[index][1])
                    index += 1
                first_line += block.count(b"\n", counted, left)
                counted = left
                self._line(block, position, left, right, found, first_line + 1)
                floor, position = position, max(right, place + 1)
                if (waiting and not self._waiting()) or (engine is not None and self._engine() != engine):
                    # The line began another start; what else it says was not looked for.
                    more = {rule for _, rules in self._hits(block, left, right, None, waiting=False) for rule in rules}
                    self._line(block, floor, left, right, more - found, first_line + 1)
                    break
            else:
                break
        self._lines += block.count(b"\n", begin, end)
        self._catch_up(block, position, end)

    def _hits(
        self, block: bytes, begin: int, end: int, engine: str | None, *, waiting: bool
    ) -> list[tuple[int, tuple[_Rule, ...]]]:
        hits: list[tuple[int, tuple[_Rule, ...]]] = []
        for literal, rules in _literals(engine, waiting, self._progress).present(block, begin, end):
            place = block.find(literal, begin, end)
            while place >= 0:
                hits.append((place, rules))
                place = block.find(literal, place + len(literal), end)
        if len(hits) > 1:
            hits.sort(key=lambda hit: hit[0])
        return hits

    def _engine(self) -> str | None:
        """The engine that the log is of, when all channels agree on one that is sure."""
        names = {channel.start.sure_engine() for channel in self._channels.values()}
        return names.pop() if len(names) == 1 else None

    def _waiting(self) -> bool:
        """Whether only another start is of interest: all so far are ready, or there is none in a long log."""
        if not self.recognised and not self._done:
            return self._scanned > _PATIENCE
        return bool(self._channels) and all(channel.start.is_ready for channel in self._channels.values())

    def _line(self, block: bytes, floor: int, left: int, right: int, found: set[_Rule], number: int) -> None:
        """Apply rules to one physical line."""
        is_known, is_first = False, True
        rules = sorted(found, key=_by_order)
        for line in split_line(block[left:right]):
            channel = self._channel(line)
            if line.stamp is None and is_first:
                self._look_back(block, floor, left, channel)
            is_first = False
            time = channel.time(line)
            for rule in rules:
                if rule.compiled.literal not in line.message:
                    continue
                start = channel.start
                if not _applies(rule, start.sure_engine(), waiting=start.is_ready):
                    continue
                match = rule.compiled.search(line.message)
                if match is None:
                    continue
                if rule.failure is not None:
                    is_known = True
                    is_news = start.fail(rule.failure, rule.engine, line, number)
                    if is_news and rule.failure.strength >= 2 and self._wants_events:
                        self._tell(channel, "failed", None, {}, "", line, time, number)
                    continue
                row = rule.row
                assert row is not None  # noqa: S101  a rule is one of the two
                if row.mark == "opens":
                    self._look_back(block, floor, left, channel)  # what came before is of the start before
                    channel.time(line)
                if channel.start.ends_before(row, line, number):
                    self._look_back(block, floor, left, channel)
                    channel.start.forget_stale(line, channel.time(line))
                    self._renew(channel)
                facts = channel.start.take(row, rule.engine, line, time, match, rule.compiled, channel.stamps, number)
                is_known = is_known or facts is not None
                if facts is not None and self._wants_events:
                    self._tell(channel, row.event, row.phase, facts, row.mark, line, time, number)
            channel.start.see(line, time)
        if is_known and number != self._last_known:
            self._last_known = number
            self.recognised += 1

    def _channel(self, line: Line) -> _Channel:
        name = line.channel or self._last_channel
        if name not in self._channels and len(self._channels) >= _MOST_CHANNELS:
            self._notes.add(f"containers beyond {_MOST_CHANNELS} are counted as one of them")
            name = self._last_channel
        self._last_channel = name
        if name not in self._channels:
            unnamed = self._channels.pop("", None) if name else None
            self._channels[name] = unnamed or _Channel()  # lines before the first name belong to it
        return self._channels[name]

    def _renew(self, channel: _Channel) -> None:
        """Close a start: the next one begins with this line, or with what its processes printed just before."""
        fresh = channel.start.successor()
        if channel.start.events:
            done = assemble(channel.start, by_carrier=self._by_carrier)
            self._ranks_kept += len(done.ranks)
            if self._ranks_kept > _MOST_RANKS_KEPT:
                done = replace(done, ranks={})
                self._notes.add(f"figures by rank are kept for {_MOST_RANKS_KEPT} ranks in all")
            self._done.append(replace(done, earlier=channel.count))
            channel.count += 1
            self._made += 1
            if len(self._done) > _MOST_STARTS:
                self._done.pop(0)
                self.dropped_starts += 1
        channel.start = fresh

    def _tell(
        self, channel: _Channel, name: str, phase: Phase | None, facts: Mapping[str, float], mark: Mark, line: Line, time: float | None, number: int,
    ) -> None:  # fmt: skip
        if len(self._events) < _MOST_EVENTS:
            elapsed = channel.start.elapsed(time, line, channel.stamps)
            text = one_line(without_secrets(line.message[:LONGEST_KEPT]), 300)
            self._events.append(Event(name, phase, facts, number, elapsed, line.rank, self._made, mark, text))

    def _emit(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # --- stamps of lines that no table knows ----------------------------------------------------------------------------

    def _any_stamp(self) -> bool:
        return any(channel.start.has_first for channel in self._channels.values())

    def _find_first_stamp(self, block: bytes, begin: int, end: int) -> None:
        """The first stamped line: a start is counted from there, whatever the line says. Looked for at the head of a log only."""
        position = begin
        while self._looked_ahead < _LINES_AHEAD and position < end:
            self._looked_ahead += 1
            stop = block.find(b"\n", position, end)
            stop = end if stop < 0 else stop
            for line in split_line(block[position : min(stop, position + _BEFORE)]):
                if line.stamp is not None or line.carried is not None:
                    channel = self._channel(line)
                    channel.start.see(line, channel.time(line))
                    channel.stamps.clear()  # lines before it are not of its time
                    if line.stamp is not None:
                        return
            position = stop + 1

    def _look_back(self, block: bytes, floor: int, left: int, channel: _Channel) -> None:
        """Bring the clocks up to the last stamped line before ``left``."""
        for clock in tuple(channel.stamps) or tuple(STAMP_ANCHORS):
            anchor = STAMP_ANCHORS[clock]
            for begin in (max(floor, left - _BEFORE), floor):
                last = None
                for last in anchor.finditer(block, begin, left):  # noqa: B007  the last one is wanted
                    pass
                if last is not None or begin == floor:
                    break
            if last is None:
                continue
            begin = max(block.rfind(b"\n", floor, last.start()) + 1, floor, last.start() - _BEFORE)
            for line in split_line(block[begin : min(left, last.end() + 256)]):
                if line.stamp is not None:
                    owner = self._channel(line)
                    owner.start.see(line, owner.time(line))

    def _catch_up(self, block: bytes, position: int, end: int) -> None:
        """At the end of a stretch: the last stamp in it, and the last stamp of the carrier."""
        channel = self._channels.get(self._last_channel)
        if channel is None:
            return
        if channel.start.bounds:
            self._look_back(block, position, end, channel)
        if channel.start.carried is not None:
            left = max(block.rfind(b"\n", position, end - 1) + 1, position)
            for line in split_line(block[left : min(end, left + _BEFORE)]):
                if line.carried is not None:
                    self._channel(line).start.see(line, None)

    # --- results --------------------------------------------------------------------------------------------------------

    def current(self) -> ParsedStartup | None:
        """The start that was written to last, as far as it is known by now."""
        channel = self._channels.get(self._last_channel)
        return (
            assemble(channel.start, by_carrier=self._by_carrier)
            if channel is not None and channel.start.events
            else None
        )

    def _assembled(self) -> Iterator[ParsedStartup]:
        running = [(channel, channel.start) for channel in self._channels.values() if channel.start.events]
        starts = [
            *self._done,
            *(
                replace(assemble(start, by_carrier=self._by_carrier), earlier=channel.count)
                for channel, start in running
            ),
        ]
        starts.sort(key=lambda start: start.first_line)
        notes = tuple(sorted(self._notes))
        if self.dropped_starts:
            notes += (f"{self.dropped_starts} earlier starts are not kept",)
        whole = {"lines": self.lines, "recognised": self.recognised, "source_digest": self._digest.hexdigest()}
        for start in starts:
            yield replace(start, warnings=(*start.warnings, *notes), **whole)  # type: ignore[arg-type]


# --- whole logs ---------------------------------------------------------------------------------------------------------

_UNNAMED = "the log"
LogInput = str | bytes | os.PathLike[str] | Iterable[str] | Iterable[bytes]


def parse_log(log: LogInput) -> ParsedStartup:
    """The last start in a log; ``parse_starts`` gives all of them, ``.earlier`` says how many came before it.

    ``log``: a path, the text itself (anything with a line break), bytes, lines, or an open file. Raises InputFileError, in one line, for an empty
    or binary file, a folder, or the log of another program.
    """
    return parse_starts(log)[-1]


def parse_starts(log: LogInput, *, chunks: bool = False, name: str = _UNNAMED) -> list[ParsedStartup]:
    """Every start in a log (of a container that was started again and again, of several pods), in the order in which they began.

    ``chunks``: the items of ``log`` are pieces of any length, not lines. ``name``: what errors call it. At most the last thousand starts are kept. Raises InputFileError like ``parse_log``.
    """
    parser = StartupLogParser(events=False)
    for piece in _pieces(log, chunks=chunks):
        if isinstance(piece, Path):
            name = str(piece)
        else:
            parser.feed(piece)
            if parser.bytes > _MOST_JUNK and parser.is_binary and not parser.recognised:
                raise InputFileError(f"{name}: not text; give {_WHAT}")
    starts = parser.finish()
    if parser.bytes == 0:
        raise InputFileError(f"{name}: empty; give {_WHAT}")
    if not starts:
        if parser.is_binary:
            raise InputFileError(f"{name}: not text; give {_WHAT}")
        known = ", ".join(engine.name for engine in ENGINES.values())
        raise InputFileError(
            f"{name}: none of its {parser.lines} line(s) is known from the start of an inference server; give {_WHAT} ({known})"
        )
    return [replace(start, source="" if name == _UNNAMED else name) for start in starts]


def _pieces(log: LogInput, *, chunks: bool) -> Iterator[Path | bytes | str]:
    """What to feed; a path comes first where there is one."""
    if isinstance(log, bytes):
        yield log
        return
    if isinstance(log, str):
        if "\n" in log or "\r" in log or not log.strip():
            yield log
            return
        if len(log) > 4096 or not (is_file(Path(log)) or is_folder(Path(log))):
            if any(rule.compiled.search(log) for rule in _rules()):
                yield log
                return
            if len(log) > 4096:
                raise InputFileError(f"{shown(log)}: neither a file nor a known line; give {_WHAT}")
        log = Path(log)
    if isinstance(log, os.PathLike):
        path = Path(log)
        yield path
        with open_regular(path, _WHAT) as file:
            yield from read_chunks(str(path), file)
        return
    if not isinstance(log, Iterable):
        raise ConfigError("log", log, "it is no log", "give a path, its text, or its lines")
    batch = bytearray()
    for line in log:
        if not isinstance(line, str | bytes):
            raise ConfigError("log", line, "a line should be text", "give a path, its text, or its lines")
        batch += line.encode("utf-8", "replace") if isinstance(line, str) else line
        if not chunks and not batch.endswith(b"\n"):
            batch += b"\n"
        if len(batch) >= _WINDOW:
            yield bytes(batch)
            batch.clear()
    yield bytes(batch)


def read_chunks(name: str, file: IO[bytes]) -> Iterator[bytes]:
    """The content of a file or pipe in chunks, unpacked when it is gzip (as rotated logs are). Raises InputFileError for a damaged one."""
    peeked = getattr(file, "peek", None)
    head = peeked(2)[:2] if peeked is not None else b""
    if head != b"\x1f\x8b":
        while chunk := file.read(_CHUNK):
            yield chunk
        return
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            while chunk := unpacked.read(_CHUNK):
                yield chunk
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise InputFileError(f"{name}: a damaged gzip file ({error}); give {_WHAT}") from None
