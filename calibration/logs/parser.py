"""The parser: bytes or lines in, events out, one ``LoggedStart`` per start at the end.

A log is scanned block by block for the literal pieces of the tables' templates, and only the lines that hold one are taken apart: work grows
with the length of the log, memory does not.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

from calibration.logs.lines import ANCHORS, Line, Template, split_line, template
from calibration.logs.parsed import LoggedStart, assemble
from calibration.logs.reading import MAX_KEPT, OpenStart
from startup_model.engines.logtable import Failure, LogTable, Mark, Row, common_table, log_tables
from startup_model.errors import InputFileError, UnknownNameError, one_line, shown, wrong_type
from startup_model.files import is_file, is_folder, open_regular
from startup_model.phases import PHASES
from startup_model.secrets import redact_text

_WINDOW = 2**16  # bytes that are scanned at a time
_MAX_PIECE = 2**20  # a line longer than this is taken in pieces
_OVERLAP = 2**13
_BEFORE, _BEHIND = 2**12, 2**17  # bytes of a long line around a literal that are looked at
_MAX_LINES_AHEAD = 2000
_MAX_STARTS, _MAX_RANKS_KEPT, _MAX_CHANNELS, _MAX_EVENTS = 1000, 20_000, 64, 100_000
_SHORT = 2**11  # bytes up to which one fed line is looked through by itself
_CHUNK = 2**20
_HEAD = 512  # bytes from which the encoding is told
_MAX_JUNK = 2**26  # bytes of no text without a known line after which reading ends
_PATIENCE = 2**22  # bytes without a single known line after which only lines that begin a start are looked for
_DAY, _YEAR = 86400.0, 365 * 86400.0
_WHAT = "the start-up log of an inference server"
_BEGINNINGS = frozenset({"opens", "begins", "settings"})  # marks of lines that may begin a start of whatever engine


class Event(NamedTuple):
    """A line that was recognised."""

    name: str
    phase: str | None
    facts: Mapping[str, float]
    line_number: int
    """In what was fed so far, from 1."""
    elapsed_s: float | None
    """Since the first stamp of this start; None without stamps."""
    rank: str
    start: int
    """Which start of the log, from 0."""
    mark: Mark
    text: str
    """The line as logged, shortened."""


class _Rule(NamedTuple):
    """A row or a failure of a table, ready to be searched."""

    order: int  # place in the tables: of several rows for one event the first that fits a line counts
    engine: str  # empty for rows that several engines share
    row: Row | None
    failure: Failure | None
    compiled: Template

    def applies(self, engine: str | None, *, waiting: bool) -> bool:
        """Whether a line that fits can say anything, in a log that is surely of ``engine`` (None: not sure)."""
        mark = self.row.mark if self.row else ""
        if engine is not None and self.engine not in ("", engine) and mark not in ("begins", "settings"):
            return False
        late = self.failure is not None and self.failure.even_when_ready
        return not waiting or late or mark in _BEGINNINGS or mark == "over"


def _known_tables() -> Mapping[str, LogTable]:
    """The tables of all engines; one that names unknown phases (it may be of another package) is left out, with a warning."""
    tables = dict(log_tables())
    for table in log_tables().values():
        if unknown := table.phases() - PHASES.keys():
            del tables[table.name]
            error = UnknownNameError(f"{table.name}/log.toml: phase", min(unknown), map(str, PHASES))
            warnings.warn(f"{error} (its logs are left out)", RuntimeWarning, stacklevel=3)
    return tables


_Literals = Mapping[bytes, tuple[_Rule, ...]]


@lru_cache(maxsize=4)
def _rules(tables: tuple[LogTable, ...]) -> tuple[_Rule, ...]:
    rules: list[_Rule] = []
    common = common_table()
    for name, rows, failures in (("", common.rows, common.failures), *((t.name, t.rows, t.failures) for t in tables)):
        rules += [_Rule(len(rules) + i, name, row, None, template(row.text)) for i, row in enumerate(rows)]
        rules += [_Rule(len(rules) + i, name, None, row, template(row.text)) for i, row in enumerate(failures)]
    return tuple(rules)


@lru_cache(maxsize=64)
def _literals(tables: tuple[LogTable, ...], engine: str | None, waiting: bool, progress: bool) -> _Literals:
    """Literal -> rules, of one engine (None: of all). ``waiting``: only what matters once all starts are ready."""
    found: dict[bytes, list[_Rule]] = {}
    for rule in _rules(tables):
        if rule.applies(engine, waiting=waiting) and (progress or rule.row is None or rule.row.mark != "progress"):
            found.setdefault(rule.compiled.literal.encode(), []).append(rule)
    return {literal: tuple(rules) for literal, rules in found.items()}


class _Channel:
    """What one container or pod has printed: starts, one after the other."""

    def __init__(self, tables: Mapping[str, LogTable]) -> None:
        self.start = OpenStart(tables)
        self.stamps: dict[str, tuple[float, str]] = {}  # clock -> the last stamp and how it was printed
        self.offsets: dict[str, float] = {}  # clock -> seconds of the years that went by
        self.is_leap_year = False
        self.count = 0  # starts that are over

    def assembled(self, *, by_carrier: bool) -> LoggedStart | None:
        """What is known of the present start by now; None: nothing."""
        return replace(assemble(self.start, by_carrier=by_carrier), earlier=self.count) if self.start.events else None

    def time(self, line: Line) -> float | None:
        """The stamp of a line on a clock that runs on over midnight and New Year, where the stamp does not tell the day or year."""
        if line.stamp is None:
            return None
        clock, last = line.clock, self.stamps.get(line.clock)
        value = line.stamp + self.offsets.get(clock, 0.0)
        if clock == "month_day":
            self.is_leap_year = self.is_leap_year or line.stamped.startswith("02-29")
            if self.is_leap_year and line.stamped[:2] > "02":
                value += _DAY
            if last is not None and value > last[0] + _YEAR / 2:
                value -= _YEAR  # a straggler of the old year
        period = _YEAR if clock == "month_day" else _DAY if clock == "bracketed" and line.stamp < _DAY else None
        if last is not None and period is not None and value < last[0] - period / 2:
            self.offsets[clock] = self.offsets.get(clock, 0.0) + period
            value += period
        if last is None or value >= last[0] or value < last[0] - 60:
            self.stamps[clock] = (value, line.stamped)
        return value


class StartupLogParser:
    """Reads a log as it grows: ``feed`` what has arrived, get the events in it; ``finish`` for the starts.

    ``progress``: also the events of progress bars; ``events=False``: only the starts at the end are wanted; ``by_carrier``: times by the stamps of what carried
    the log, which may be finer than the engine's. Nothing is raised for any content; memory is bounded whatever is fed.
    """

    def __init__(self, *, progress: bool = False, events: bool = True, by_carrier: bool = False) -> None:
        self.recognised = 0
        """Lines that a table knows."""
        self.bytes = 0
        self.dropped_starts = 0
        """Starts beyond the thousand that are kept."""
        self._tables = _known_tables()
        self._progress, self._wants_events, self._by_carrier = progress, events, by_carrier
        self._lines = 0  # that were scanned
        self._last_byte = b"\n"
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._watched: _Literals | None = None  # what single lines are looked through for; None after a scan
        self._decoder: codecs.IncrementalDecoder | None = None
        self._began = False
        self._head = b""
        self._digest = hashlib.sha256()
        self._channels: dict[str, _Channel] = {}
        self._last_channel = ""
        self._done: list[LoggedStart] = []
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
            raise wrong_type("data", data, "text or bytes", "feed a piece of a log")
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
        if self._says_nothing(raw):
            self._hold(raw)
            return []
        for offset in range(0, len(raw), _CHUNK):
            self._take(raw[offset : offset + _CHUNK])
        events, self._events = self._events, []
        return events

    def finish(self) -> list[LoggedStart]:
        """All starts, in the order in which they began, those without any recognised line left out."""
        if self._head:
            self._began = True
            raw, self._head = self._head, b""
            self._take(raw)
        self._catch_up()
        if self.bytes and self._last_byte != b"\n":
            self._lines += 1
        return list(self._assembled())

    def starts(self) -> list[LoggedStart]:
        """The starts as far as they are known by now."""
        if self._last_byte == b"\n":
            self._catch_up()
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
        is_line = raw.endswith(b"\n") and len(raw) <= _SHORT and self._last_byte == b"\n"
        if not (is_line and self._began and self._decoder is None and self._waiting_bytes + len(raw) <= _WINDOW):
            return False
        if self._watched is None:
            self._watched = _literals(tuple(self._tables.values()), self._engine(), self._waiting(), self._progress)
        return not any(map(raw.count, self._watched))

    def _hold(self, raw: bytes) -> None:
        self._digest.update(raw)
        self.bytes += len(raw)
        self._last_byte = raw[-1:] or self._last_byte
        self._parts.append(raw)
        self._waiting_bytes += len(raw)

    def _catch_up(self) -> None:
        if self._parts:
            buffer, self._parts, self._waiting_bytes = b"".join(self._parts), [], 0
            self._scan(buffer)

    def _take(self, raw: bytes) -> None:
        if not self._began:
            self._head += raw
            if len(self._head) < _HEAD and b"\n" not in self._head:
                return  # too little to tell the encoding from
            raw, self._head = self._head, b""
            self._begin(raw[:_WINDOW])
        if self._decoder is not None:
            raw = self._decoder.decode(raw).encode("utf-8", "replace")
        self._hold(raw)
        if b"\n" not in raw and b"\r" not in raw and self._waiting_bytes <= _MAX_PIECE:
            return  # the line goes on
        buffer = b"".join(self._parts)
        cut = max(buffer.rfind(b"\n"), buffer.rfind(b"\r")) + 1
        if len(buffer) - cut > _MAX_PIECE:
            limit = len(buffer) - _OVERLAP
            cut = (buffer.rfind(b" ", cut, limit) + 1) or limit
        self._parts, self._waiting_bytes = [buffer[cut:]], len(buffer) - cut
        self._scan(buffer[:cut])

    def _begin(self, head: bytes) -> None:
        """Tell the encoding, and count the characters that no text has."""
        self._began = True
        encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None
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
                stop = end or min(block.find(b"\n", stop) + 1 or length, position + _MAX_PIECE)
            self._window(block, position, stop)
            self._scanned += stop - position
            position = stop

    def _window(self, block: bytes, begin: int, end: int) -> None:
        """Scan a stretch of whole lines; once more for everything from where another start began."""
        counted, number, position = begin, self._lines, begin
        if not any(channel.start.has_first for channel in self._channels.values()):
            self._find_first_stamp(block, begin, end)
        engine, waiting, goes_on = self._engine(), self._waiting(), True
        while goes_on:
            goes_on = False
            hits = self._hits(block, position, end, engine, waiting=waiting)
            index = 0
            while index < len(hits):
                left, right = _line_around(block, hits[index][0], position, end)
                found: set[_Rule] = set()
                place = hits[index][0]
                while index < len(hits) and hits[index][0] < right:
                    found.update(hits[index][1])
                    index += 1
                number += block.count(b"\n", counted, left)
                counted = left
                self._line(block, position, left, right, found, number + 1)
                floor, position = position, max(right, place + 1)
                if (waiting and not self._waiting()) or (engine is not None and self._engine() != engine):
                    # The line began another start; what else it says was not looked for.
                    more = {rule for _, rules in self._hits(block, left, right, None, waiting=False) for rule in rules}
                    self._line(block, floor, left, right, more - found, number + 1)
                    engine, waiting, goes_on = None, False, True
                    break
        self._lines += block.count(b"\n", begin, end)
        self._see_last_stamps(block, position, end)

    def _hits(
        self, block: bytes, begin: int, end: int, engine: str | None, *, waiting: bool
    ) -> list[tuple[int, tuple[_Rule, ...]]]:
        hits: list[tuple[int, tuple[_Rule, ...]]] = []
        literals = _literals(tuple(self._tables.values()), engine, waiting, self._progress)
        for literal in filter(block[begin:end].count, literals):
            place = block.find(literal, begin, end)
            while place >= 0:
                hits.append((place, literals[literal]))
                place = block.find(literal, place + len(literal), end)
        return sorted(hits, key=lambda hit: hit[0])

    def _engine(self) -> str | None:
        """The engine that the log is of, when all channels agree on one that is sure."""
        names = {channel.start.sure_engine for channel in self._channels.values()}
        return names.pop() if len(names) == 1 else None

    def _waiting(self) -> bool:
        """Whether only another start is of interest: all so far are ready, or there is none in a long log."""
        if not self.recognised and not self._done:
            return self._scanned > _PATIENCE
        return bool(self._channels) and all(channel.start.is_ready for channel in self._channels.values())

    def _line(self, block: bytes, floor: int, left: int, right: int, found: set[_Rule], number: int) -> None:
        is_known, rules = False, sorted(found, key=lambda rule: rule.order)
        for index, line in enumerate(split_line(block[left:right])):
            channel = self._channel(line)
            if line.stamp is None and index == 0:
                self._look_back(block, floor, left, channel)
            time = channel.time(line)
            for rule in rules:
                start = channel.start
                is_in = rule.compiled.literal in line.message
                applies = is_in and rule.applies(start.sure_engine, waiting=start.is_ready)
                if not applies or (match := rule.compiled.search(line.message)) is None:
                    continue
                if rule.failure is not None:
                    is_known = True
                    if start.fail(rule.failure, rule.engine, line, number) and rule.failure.strength >= 2:
                        self._tell(channel, "failed", None, {}, "", line, time, number)
                    continue
                row = rule.row
                assert row is not None  # noqa: S101  a rule is one of the two
                if row.mark == "opens":
                    self._look_back(block, floor, left, channel)  # what came before is of the start before
                    channel.time(line)
                if channel.start.ends_before(row, line, number):
                    self._look_back(block, floor, left, channel)
                    channel.start.drop_stale(line, channel.time(line))
                    self._renew(channel)
                facts = channel.start.take(row, rule.engine, line, time, match, rule.compiled, channel.stamps, number)
                if facts is not None:
                    is_known = True
                    self._tell(channel, row.event, row.phase, facts, row.mark, line, time, number)
            channel.start.see(line, time)
        if is_known and number != self._last_known:
            self._last_known = number
            self.recognised += 1

    def _channel(self, line: Line) -> _Channel:
        name = line.channel or self._last_channel
        if name not in self._channels and len(self._channels) >= _MAX_CHANNELS:
            self._notes.add(f"containers beyond {_MAX_CHANNELS} are counted as one of them")
            name = self._last_channel
        self._last_channel = name
        if name not in self._channels:
            unnamed = self._channels.pop("", None) if name else None
            self._channels[name] = unnamed or _Channel(self._tables)  # lines before the first name belong to it
        return self._channels[name]

    def _renew(self, channel: _Channel) -> None:
        """Close a start: the next one begins with this line, or with what its processes printed just before."""
        fresh = channel.start.successor()
        if (done := channel.assembled(by_carrier=self._by_carrier)) is not None:
            self._ranks_kept += len(done.ranks)
            if self._ranks_kept > _MAX_RANKS_KEPT:
                done = replace(done, ranks={})
                self._notes.add(f"figures by rank are kept for {_MAX_RANKS_KEPT} ranks in all")
            self._done.append(done)
            channel.count += 1
            self._made += 1
            if len(self._done) > _MAX_STARTS:
                self._done.pop(0)
                self.dropped_starts += 1
        channel.start = fresh

    def _tell(
        self, channel: _Channel, name: str, phase: str | None, facts: Mapping[str, float], mark: Mark, line: Line, time: float | None, number: int,
    ) -> None:  # fmt: skip
        if self._wants_events and len(self._events) < _MAX_EVENTS:
            elapsed = channel.start.elapsed(time, line, channel.stamps)
            text = one_line(redact_text(line.message[:MAX_KEPT]), 300)
            self._events.append(Event(name, phase, facts, number, elapsed, line.rank, self._made, mark, text))

    # --- stamps of lines that no table knows ----------------------------------------------------------------------------

    def _find_first_stamp(self, block: bytes, begin: int, end: int) -> None:
        """The first stamped line: a start is counted from there, whatever the line says. Looked for at the head of a log only."""
        position = begin
        while self._looked_ahead < _MAX_LINES_AHEAD and position < end:
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
        for clock in tuple(channel.stamps) or tuple(ANCHORS):
            places = dict.fromkeys((max(floor, left - _BEFORE), floor))  # near first
            last = next(filter(None, (_last_match(clock, block, place, left) for place in places)), None)
            if last is None:
                continue
            begin = max(block.rfind(b"\n", floor, last[0]) + 1, floor, last[0] - _BEFORE)
            for line in split_line(block[begin : min(left, last[1] + 256)]):
                if line.stamp is not None:
                    owner = self._channel(line)
                    owner.start.see(line, owner.time(line))

    def _see_last_stamps(self, block: bytes, position: int, end: int) -> None:
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

    def current(self) -> LoggedStart | None:
        """The start that was written to last, as far as it is known by now."""
        channel = self._channels.get(self._last_channel)
        return None if channel is None else channel.assembled(by_carrier=self._by_carrier)

    def _assembled(self) -> Iterator[LoggedStart]:
        running = filter(None, (it.assembled(by_carrier=self._by_carrier) for it in self._channels.values()))
        notes = tuple(sorted(self._notes))
        if self.dropped_starts:
            notes += (f"{self.dropped_starts} earlier starts are not kept",)
        digest = self._digest.hexdigest()
        for start in sorted([*self._done, *running], key=lambda start: start.first_line):
            warnings = (*start.warnings, *notes)
            yield replace(start, warnings=warnings, lines=self.lines, recognised=self.recognised, source_digest=digest)


def _line_around(block: bytes, place: int, floor: int, end: int) -> tuple[int, int]:
    """Where the line, or the piece of a bar, begins and ends that holds ``place``; of a long line what is near to it."""
    left = max(block.rfind(b"\n", floor, place) + 1, floor)
    left = max(block.rfind(b"\r", left, place) + 1, left, place - _BEFORE)
    right = block.find(b"\n", place, end)
    right = end if right < 0 else right
    inner = block.find(b"\r", place, right)
    return left, min(right if inner < 0 else inner, place + _BEHIND)


def _last_match(clock: str, block: bytes, begin: int, end: int) -> tuple[int, int] | None:
    last = None
    for last in ANCHORS[clock].finditer(block, begin, end):  # noqa: B007  the last one is wanted
        pass
    return None if last is None else last.span()


# --- whole logs ---------------------------------------------------------------------------------------------------------

_UNNAMED = "the log"
LogInput = str | bytes | os.PathLike[str] | Iterable[str] | Iterable[bytes]


def parse_log(log: LogInput) -> LoggedStart:
    """The last start in a log; ``parse_starts`` gives all of them, ``.earlier`` says how many came before it.

    ``log``: a path, the text itself (anything with a line break), bytes, lines, or an open file. Raises InputFileError, in one line, for an empty
    or binary file, a folder, or the log of another program.
    """
    return parse_starts(log)[-1]


def parse_starts(log: LogInput, *, chunks: bool = False, name: str = _UNNAMED) -> list[LoggedStart]:
    """Every start in a log (of a container that was started again and again, of several pods), in the order in which they began.

    ``chunks``: the items of ``log`` are pieces of any length, not lines. ``name``: what errors call it. At most the last thousand starts are kept. Raises InputFileError like ``parse_log``.
    """
    parser = StartupLogParser(events=False)
    for piece in _pieces(log, chunks=chunks):
        if isinstance(piece, Path):
            name = str(piece)
        else:
            parser.feed(piece)
            if parser.bytes > _MAX_JUNK and parser.is_binary and not parser.recognised:
                raise InputFileError(f"{name}: not text; give {_WHAT}")
    starts = parser.finish()
    if parser.bytes == 0:
        raise InputFileError(f"{name}: empty; give {_WHAT}")
    if not starts and parser.is_binary:
        raise InputFileError(f"{name}: not text; give {_WHAT}")
    if not starts:
        known = ", ".join(log_tables())
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
        is_text = "\n" in log or "\r" in log or not log.strip()
        is_path = not is_text and len(log) <= 4096 and (is_file(Path(log)) or is_folder(Path(log)))
        rules = () if is_text or is_path else _rules(tuple(log_tables().values()))
        if is_text or any(rule.compiled.search(log) for rule in rules):
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
    remedy = "give a path, its text, or its lines"
    if not isinstance(log, Iterable):
        raise wrong_type("log", log, "a log", remedy)
    batch = bytearray()
    for line in log:
        if not isinstance(line, str | bytes):
            raise wrong_type("log", line, "lines of text", remedy)
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
