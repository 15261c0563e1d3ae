"""From what stands in a file to what a process logged: prefixes of containers, journals and JSON taken off, stamps read, splices undone;
and the templates that find figures in such a line.

One physical line may hold several logged ones (workers write into a progress bar), one logged line may arrive in many wrappings. The stamp
of the engine is kept apart from the stamp that whatever carried the line put before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

_MAX_LINE = 2**17  # characters of one physical line that are looked at
_MAX_PIECES = 64
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_MONTHS = {name: i for i, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}  # noqa: SIM905


class Line(NamedTuple):
    """One logged line."""

    message: str
    stamp: float | None = None  # seconds on the engine's own clock; what its zero is depends on ``clock``
    clock: str = ""  # layout of the stamp, one of ``LAYOUTS``; empty without one
    decimals: int = 0  # digits of the stamp behind the point
    stamped: str = ""  # the stamp as printed
    carried: float | None = None  # seconds that the carrier (container runtime, journal, JSON record) stamped
    rank: str = ""  # the process, as it names itself: ``Worker_TP0 pid=8003``, ``TP1``; empty when it does not
    level: str = ""
    channel: str = ""  # container or pod, where the carrier prints it


# --- stamps -------------------------------------------------------------------------------------------------------------


def _year_day(text: str) -> float | None:
    """``MM-DD HH:MM:SS[.fff]`` as seconds since the start of a year; 29 February makes it a leap year, which is told apart later."""
    month, day = int(text[0:2]), int(text[3:5])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return (_DAYS_BEFORE[month - 1] + day - 1) * 86400.0 + _time_of_day(text[6:])


def _time_of_day(text: str) -> float:
    hours, minutes, seconds = int(text[0:2]), int(text[3:5]), float(text[6:].replace(",", "."))
    if hours > 23 or minutes > 59 or seconds >= 61:
        raise ValueError(text)
    return hours * 3600.0 + minutes * 60.0 + seconds


def _absolute(text: str) -> float | None:
    """An ISO stamp as seconds since 1970 (UTC where no zone is given)."""
    try:
        moment = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _elapsed(text: str) -> float | None:
    """``M.SS.mmm.uuu`` since the process began."""
    minutes, seconds, milli, micro = text.split(".")
    return int(minutes) * 60.0 + int(seconds) + int(milli) * 1e-3 + int(micro) * 1e-6


def _syslog(text: str) -> float | None:
    """``Mon DD HH:MM:SS``."""
    month = _MONTHS.get(text[0:3])
    return None if month is None else _year_day(f"{month:02d}-{int(text[4:6]):02d} {text[7:]}")


_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_SECONDS = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?"


class _Layout(NamedTuple):
    header: str  # groups: the stamp by the name of the layout; ``_level`` and ``_ranks`` after that name. The last group is always there.
    read: Callable[[str], float | None]
    anchor: bytes  # what a line with such a stamp holds; cheap, to find the last one of a block


LAYOUTS: Mapping[str, _Layout] = {
    "month_day": _Layout(
        rf"(?P<month_day_level>DEBUG|INFO|WARNING|ERROR|CRITICAL) {{1,4}}(?P<month_day>[0-9]{{2}}-[0-9]{{2}} {_SECONDS}) "
        r"\[?(?P<month_day_source>[\w./<>-]{1,120}:[0-9]{1,6})\] ?",
        _year_day,
        rb"(?:DEBUG|INFO|WARNING|ERROR) [0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}",
    ),
    "bracketed": _Layout(
        rf"\[(?P<bracketed>{_DATE} {_SECONDS})(?P<bracketed_ranks>(?: [A-Z]{{2,8}}[0-9]{{1,4}}){{0,8}})\] ",
        _absolute,
        rb"\[(?:[0-9]{4}-[0-9]{2}-[0-9]{2} )?[0-9]{2}:[0-9]{2}:[0-9]{2}",
    ),
    "hours": _Layout(
        rf"\[(?P<hours>{_SECONDS})(?P<hours_ranks>(?: [A-Z]{{2,8}}[0-9]{{1,4}}){{0,8}})\] ", _time_of_day, b""
    ),
    "iso_level": _Layout(
        rf"(?P<iso_level>{_DATE}T{_SECONDS}Z) {{1,2}}(?P<iso_level_level>INFO|WARN|ERROR|DEBUG|TRACE) (?![0-9]{{2}}-[0-9]{{2}} )",
        _absolute,
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}",
    ),
    "elapsed": _Layout(
        r"(?:^|(?<= ))(?P<elapsed>[0-9]{1,5}\.[0-9]{2}\.[0-9]{3}\.[0-9]{3}) (?P<elapsed_level>[IWED]) ",
        _elapsed,
        rb"[0-9]\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} [IWED] ",
    ),
    "american": _Layout(
        rf"\[(?P<american>[0-9]{{2}}/[0-9]{{2}}/[0-9]{{4}}-{_SECONDS})\] (?:\[[A-Z]{{2,5}}-[A-Z]{{2,5}}\] )?"
        r"(?:\[RANK (?P<american_ranks>[0-9]{1,4})\] )?\[(?P<american_level>[A-Z]{1,8})\] ",
        lambda text: _absolute(f"{text[6:10]}-{text[0:2]}-{text[3:5]} {text[11:]}"),
        rb"\[[0-9]{2}/[0-9]{2}/[0-9]{4}-[0-9]{2}:[0-9]{2}",
    ),
    "klog": _Layout(
        r"\b[IWEF](?P<klog>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}) {1,8}[0-9]{1,8} [\w.-]{1,80}:[0-9]{1,6}\] ",
        lambda text: _year_day(f"{text[0:2]}-{text[2:]}"),
        rb"[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} ",
    ),
    "dashed": _Layout(
        rf"(?P<dashed>{_DATE} {_SECONDS}) - [a-z][\w.]{{1,50}} - (?P<dashed_level>[A-Z]{{4,8}}) - ",
        _absolute,
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} - ",
    ),
}
"""Layouts of stamps that engines print. A table of an engine names its own as ``clock``; ``hours`` counts as ``bracketed``."""
YEARLY = frozenset({"month_day", "klog"})
"""Layouts that tell no year."""
ANCHORS: Mapping[str, re.Pattern[bytes]] = {name: re.compile(row.anchor) for name, row in LAYOUTS.items() if row.anchor}
_HEADERS = re.compile("|".join(row.header for row in LAYOUTS.values()))
_AT_HEAD = re.compile(r"(?:# )?(?:\([A-Za-z][^()]{1,120}\) ){0,2}(?=DEBUG |INFO |WARNING |ERROR |\[[0-9]{4}-)")
_MAY_FOLLOW = re.compile(  # what every header holds
    r"[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}|[0-9]T[0-9]{2}:[0-9]{2}:|\.[0-9]{3}\.[0-9]{3} [IWED]|[0-9]{4}-[0-9]{2}:[0-9]{2}|"
    r"[IWEF][0-9]{4} |\[[0-9]{2}:[0-9]{2}:[0-9]{2}"
)

# --- carriers -----------------------------------------------------------------------------------------------------------

# Codes of a terminal; a paste may have lost the escape character of those that colour.
_ANSI = re.compile(r"(?:\x1b|#033|\^\[)(?:\[[0-9;:?]{0,24}[ -/]{0,2}[@-~]|[@-Z\\-_])|\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m")
_CHANNEL = re.compile(
    r"(?:\x1b\[[0-9;]{0,12}m)?(?P<compose>[\w./@:-]{1,100}) {1,40}\| |\[(?P<pod>(?:pod|container)/[\w./:-]{1,200})\] |"
    r"(?P<stern>[a-z0-9][a-z0-9.-]{2,60}-(?:[a-z0-9]{4,10}-[a-z0-9]{3,5}|[0-9]{1,3})) [a-z0-9][a-z0-9-]{0,40} "
    r"(?=\(|\[|INFO|WARNING|ERROR|DEBUG|Loading |Capturing |Traceback)"
)
_CARRIERS: tuple[tuple[re.Pattern[str], Callable[[str], float | None]], ...] = (
    (re.compile(rf"(?:<[0-9]{{1,3}}>1? ?)?(?P<stamp>{_ISO})(?: std(?:out|err) [FP])?(?=[ \t:])"), _absolute),
    (re.compile(r"(?:<[0-9]{1,3}>)?(?P<stamp>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?) "), _syslog),
    (re.compile(r"\[?(?P<stamp>1[0-9]{9}(?:\.[0-9]{1,9})?)\]?[ :]"), float),
)  # fmt: skip
_CARRIER_HEADS = frozenset("0123456789<[")  # what stamps of carriers begin with, but for the names of months
_MESSAGE_KEYS = ("message", "log", "msg", "MESSAGE", "text", "line", "body", "event")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP")
_LEVEL_KEYS = ("levelname", "level", "severity")
_CHANNEL_KEYS = ("pod_name", "pod", "container_name", "container")
_RANK = re.compile(r"\((?P<name>[A-Za-z][\w.-]{0,60})(?P<fields>(?:,? [a-z_]{1,20}=[^ ,)]{1,64}){1,5})\)")
_FIELD = re.compile(r"([a-z_]+)=([^ ,)]+)")


def split_line(raw: bytes) -> Iterator[Line]:
    """The logged lines in one physical line. Bounded work, never an exception."""
    text = raw[:_MAX_LINE].decode("utf-8", "replace")
    channel, first = "", text[:1]
    # A cheap look at what most lines begin with: INFO, (Worker_TP0, a bar.
    may_name_channel = first.islower() or first.isdigit() or first in "[\x1b" or "| " in text[:150]
    if may_name_channel and (match := _CHANNEL.match(text)):
        channel = match["compose"] or match["pod"] or match["stern"]
        text = text[match.end() :]
    if text[:1] in ("{", " ") and (record := _json_record(text)) is not None:
        text, carried, level, pod = record
        for line in text.splitlines()[:_MAX_PIECES]:
            for piece in _pieces(_plain(line), carried, channel or pod):
                yield piece if piece.level else piece._replace(level=level)
        return
    yield from _pieces(_plain(text), None, channel)


def _plain(text: str) -> str:
    """Without the codes that colour a terminal; what escape characters remain are no codes."""
    if "\x1b" in text or "[0m" in text or "#033" in text or "^[" in text:
        return _ANSI.sub("", text).replace("\x1b", "")
    return text


def _pieces(text: str, carried: float | None, channel: str) -> Iterator[Line]:
    """Split at every header; what stands before the first one is a line of its own when it is more than a prefix."""
    if carried is None and (text[:1] in _CARRIER_HEADS or text[:3] in _MONTHS):
        for pattern, read in _CARRIERS:
            if match := pattern.match(text):
                carried = _read(read, match["stamp"])
                break
    headers = _headers(text)
    if not headers:
        yield Line(text, carried=carried, rank=_rank(text[:200]) if text[:1] == "(" else "", channel=channel)
        return
    start = headers[0].start()
    if start > 80 or "%" in text[:start]:
        yield Line(text[:start], carried=carried, rank=_rank(text[:200]), channel=channel)
    position = 0
    for match, following in zip(headers, [*headers[1:], None], strict=True):
        end = len(text) if following is None else following.start()
        yield _logged(match, text, position, end, carried, channel)
        position = match.end()


def _headers(text: str) -> list[re.Match[str]]:
    """All headers in a line. Most lines have one, at their head; only where more may follow is the rest searched."""
    first = _AT_HEAD.match(text)
    if first is not None:
        first = _HEADERS.match(text, first.end())
        if first is not None and not _MAY_FOLLOW.search(text, first.end()):
            return [first]
    elif not _MAY_FOLLOW.search(text):
        return []
    return list(islice(_HEADERS.finditer(text), _MAX_PIECES))


def _logged(match: re.Match[str], text: str, position: int, end: int, carried: float | None, channel: str) -> Line:
    name, groups = _LAYOUT_OF_GROUP[match.lastgroup or ""], match.groupdict()
    stamp, start = match[name], match.start()
    ranks = (groups.get(f"{name}_ranks") or "").strip()
    if f"{name}_ranks" not in groups and start > position:
        ranks = _rank(text[max(position, start - 200) : start])
    point = max(stamp.rfind("."), stamp.rfind(","))
    decimals = 6 if name == "elapsed" else len(stamp[point + 1 :].rstrip("Z")) if point >= 0 else 0
    return Line(
        text[match.end() : end].strip(), _read(LAYOUTS[name].read, stamp), "bracketed" if name == "hours" else name, decimals, stamp,
        carried, ranks, groups.get(f"{name}_level") or "", channel,
    )  # fmt: skip


_LAYOUT_OF_GROUP = {f"{name}{part}": name for name in LAYOUTS for part in ("", "_level", "_ranks", "_source")}


@lru_cache(maxsize=4096)
def _read(read: Callable[[str], float | None], stamp: str) -> float | None:
    try:
        return read(stamp)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def _rank(text: str) -> str:
    """The process that names itself last in a prefix such as ``(EngineCore_DP0 pid=7) (Worker_TP1 pid=9) ``."""
    found = list(_RANK.finditer(text))
    if not found:
        return ""
    fields = dict(_FIELD.findall(found[-1]["fields"]))
    wanted = [f"{key}={fields[key]}" for key in ("rank", "pid", "ip") if key in fields]
    return " ".join([found[-1]["name"], *wanted]) if wanted else ""


def _json_record(text: str) -> tuple[str, float | None, str, str] | None:
    """Message, stamp, level and container of a JSON record; None for what is none."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    inner, pods = record.get("fields"), record.get("kubernetes")
    places: list[Mapping[str, Any]] = [record, inner] if isinstance(inner, dict) else [record]
    message = _first_text(places, _MESSAGE_KEYS)
    if message is None:
        return None
    channel = _first_text([*places, pods] if isinstance(pods, dict) else places, _CHANNEL_KEYS) or ""
    stamp = next((place[key] for place in places for key in _TIME_KEYS if key in place), None)
    if isinstance(record.get("target"), str):
        message = f"{record['target'][:200]}: {message}"
    return message, _json_time(stamp), (_first_text(places, _LEVEL_KEYS) or "").upper(), channel[:200]


def _first_text(places: list[Mapping[str, Any]], keys: tuple[str, ...]) -> str | None:
    texts = (place[key] for place in places for key in keys if isinstance(place.get(key), str))
    found = next(texts, None)
    return None if found is None else str(found).encode("utf-8", "replace").decode()


def _json_time(value: object) -> float | None:
    """Seconds since 1970 from ISO text or from a number of seconds, milliseconds, microseconds or nanoseconds."""
    if isinstance(value, str):
        iso = _absolute(value[:40])
        if iso is not None or not re.fullmatch(r"[0-9]{1,20}(?:\.[0-9]{1,9})?", value[:40]):
            return iso
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e30:
        return None
    return next((value / scale for scale in (1.0, 1e3, 1e6, 1e9) if 5e8 <= value / scale < 1e10), None)


# --- templates ----------------------------------------------------------------------------------------------------------

SECONDS_PER_UNIT: Mapping[str, float] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0,
}  # fmt: skip
"""Word after a figure -> seconds."""
_GIB_PER_UNIT: Mapping[str, float] = {  # engines divide by 2^30 whatever they print
    "b": 2.0**-30, "bytes": 2.0**-30, "kb": 2.0**-20, "kib": 2.0**-20, "mb": 2.0**-10, "mib": 2.0**-10,
    "gb": 1.0, "gib": 1.0, "tb": 1024.0, "tib": 1024.0,
}  # fmt: skip
_MAX_FIGURE, _MAX_SECONDS = 1e15, 1e7
_BYTES = 2.0**20  # a size without a unit from here on was printed in bytes: nobody has a million GiB
_MAX_GAP = 400
_MAX_BEGINNINGS = 4  # places in a line where a template is tried
_TIME_UNIT = r"(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours|[nuµμm]s|[smh])"
_NUMBER = r"[-+]?[0-9][0-9,]{0,20}(?:\.[0-9]{1,12})?(?:[eE][-+]?[0-9]{1,2})?"
_PLAIN = re.compile(r"[ !#-\[\]-~]+")  # the same inside a JSON string: no quotes, no backslashes, nothing beyond ASCII
_PLACE = re.compile(r"\{(\*|=?[a-z_]+)\}")


class Found(NamedTuple):
    """A line that fits a template."""

    values: Mapping[str, str]  # name -> what stands in its place; ``<name>_unit`` -> the unit behind a figure
    end: int  # where the template ends in the line


class Template(NamedTuple):
    """A compiled template. What stands between two gaps is a regular expression in which nothing repeats inside something that repeats; the gaps
    are looked up one after the other, without going back, from the first few places where the template may begin. So no line can take long."""

    literal: str  # its longest plain piece: a line without it cannot match, a JSON record of the line has it too
    parts: tuple[re.Pattern[str], ...]  # what stands between the gaps
    facts: tuple[str, ...]  # names of the figures in it
    words: tuple[str, ...]  # names of the words in it

    def search(self, text: str) -> Found | None:
        """The first place in ``text`` that fits, or None."""
        for match in islice(self.parts[0].finditer(text), _MAX_BEGINNINGS):
            values, end = match.groupdict(), match.end()
            for part in self.parts[1:]:
                following = part.search(text, end, end + _MAX_GAP)
                if following is None:
                    break
                values |= following.groupdict()
                end = following.end()
            else:
                return Found(values, end)
        return None


@lru_cache(maxsize=1024)
def template(text: str) -> Template:
    """The compiled form of a line as the engine prints it, with the names of facts in the place of the figures.

    ``"Model loading took {weights_gib} and {model_loading_s}"`` reads two numbers with their units. The ending of a name says what it is: ``_s``
    seconds (with or without a unit of time), ``_gib`` GiB (engines write GB and mean GiB), ``_x`` a factor; anything else is a whole number, which
    may have thousands separators. ``{*}`` skips text, ``{=name}`` takes a word, ``{end}`` is the end of the line. Everything else is literal.
    """
    pieces = _PLACE.split(text)
    parts: list[list[str]] = [[]]
    facts, words = [], []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            parts[-1].append(re.escape(piece).replace(r"\ ", " "))
        elif piece == "end":
            parts[-1].append(r" {0,8}\Z")
        elif piece == "*":
            parts.append([])
        elif piece.startswith("="):
            words.append(piece[1:])
            parts[-1].append(rf"(?P<{piece[1:]}>[^\s,'\"\x1b]{{1,300}})")
        else:
            facts.append(piece)
            parts[-1].append(_place(piece))
    literal = max((run for piece in pieces[::2] for run in _PLAIN.findall(piece)), key=lambda run: len(run.strip()))
    compiled = tuple(re.compile("".join(part)) for part in parts if part != [""])
    return Template(literal, compiled, tuple(facts), tuple(words))


def _place(name: str) -> str:
    if name.endswith("_s"):
        return rf"(?P<{name}>{_NUMBER}) ?\[?(?P<{name}_unit>{_TIME_UNIT}\b)?"
    if name.endswith("_gib"):  # no time
        return rf"(?P<{name}>{_NUMBER}) ?(?P<{name}_unit>(?:[KkMGT]i?B|[Bb]ytes|B)\b)?(?![0-9]|\.[0-9]| ?(?:s|ms|secs?|seconds?)\b)"
    return rf"(?P<{name}>{_NUMBER})" if name.endswith("_x") else rf"(?P<{name}>[0-9][0-9,]{{0,20}})"


def figure(name: str, number: str, unit: str | None) -> float | None:
    """The value of a fact in the unit of its name: seconds, GiB, a factor, a count. None for a figure that cannot be."""
    try:
        value = float(number.replace(",", ""))
    except ValueError:
        return None
    if name.endswith("_s"):
        value *= SECONDS_PER_UNIT.get(unit or "s", 1.0)
        return value if 0 <= value <= _MAX_SECONDS else None
    if name.endswith("_gib"):
        value *= _GIB_PER_UNIT.get((unit or ("bytes" if abs(value) >= _BYTES else "GiB")).lower(), 1.0)
        return value if abs(value) <= _MAX_FIGURE / 2**30 else None
    return value if abs(value) <= _MAX_FIGURE else None
