"""From what stands in a file to what a process logged: prefixes of containers, journals and JSON taken off, stamps read, splices undone.

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

__all__ = ["STAMP_ANCHORS", "Line", "split_line"]

_LONGEST_LINE = 2**17
"""Characters of one physical line that are looked at."""
_MOST_PIECES = 64

_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_MONTHS = {
    name: i
    for i, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
}


class Line(NamedTuple):
    """One logged line."""

    message: str
    stamp: float | None = None
    """Seconds on the engine's own clock; what its zero is depends on ``clock``."""
    clock: str = ""
    """Layout of the stamp: vllm, sglang, rust, llama.cpp, tensorrt-llm, lmdeploy; empty without one."""
    decimals: int = 0
    """Digits of the stamp behind the point."""
    stamped: str = ""
    """The stamp as printed."""
    carried: float | None = None
    """Seconds that the carrier (container runtime, journal, JSON record) stamped."""
    rank: str = ""
    """The process, as it names itself: ``Worker_TP0 pid=8003``, ``TP1``; empty when it does not."""
    level: str = ""
    channel: str = ""
    """Container or pod, where the carrier prints it."""


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


def _american(text: str) -> float | None:
    """``MM/DD/YYYY-HH:MM:SS``."""
    return _absolute(f"{text[6:10]}-{text[0:2]}-{text[3:5]} {text[11:]}")


def _elapsed(text: str) -> float | None:
    """``M.SS.mmm.uuu`` since the process began."""
    minutes, seconds, milli, micro = text.split(".")
    return int(minutes) * 60.0 + int(seconds) + int(milli) * 1e-3 + int(micro) * 1e-6


def _syslog(text: str) -> float | None:
    """``Mon DD HH:MM:SS``."""
    month = _MONTHS.get(text[0:3])
    return None if month is None else _year_day(f"{month + 1:02d}-{int(text[4:6]):02d} {text[7:]}")


_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_SECONDS = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?"

_HEADERS = re.compile(
    rf"(?P<vllm_level>DEBUG|INFO|WARNING|ERROR|CRITICAL) {{1,4}}(?P<vllm>[0-9]{{2}}-[0-9]{{2}} {_SECONDS}) \[?(?P<source>[\w./<>-]{{1,120}}:[0-9]{{1,6}})\] ?"
    rf"|\[(?P<sglang>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_SECONDS})(?P<ranks>(?: [A-Z]{{2,8}}[0-9]{{1,4}}){{0,8}})\] "
    rf"|\[(?P<hours>{_SECONDS})(?P<hour_ranks>(?: [A-Z]{{2,8}}[0-9]{{1,4}}){{0,8}})\] "
    rf"|(?P<rust>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_SECONDS}Z) {{1,2}}(?P<rust_level>INFO|WARN|ERROR|DEBUG|TRACE) (?![0-9]{{2}}-[0-9]{{2}} )"
    r"|(?:^|(?<= ))(?P<elapsed>[0-9]{1,5}\.[0-9]{2}\.[0-9]{3}\.[0-9]{3}) (?P<elapsed_level>[IWED]) "
    rf"|\[(?P<american>[0-9]{{2}}/[0-9]{{2}}/[0-9]{{4}}-{_SECONDS})\] (?:\[TRT-LLM\] )?(?:\[RANK (?P<trt_rank>[0-9]{{1,4}})\] )?\[(?P<american_level>[A-Z]{{1,8}})\] "
    r"|\b[IWEF](?P<klog>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}) {1,8}[0-9]{1,8} [\w.-]{1,80}:[0-9]{1,6}\] "
    rf"|(?P<lmdeploy>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_SECONDS}) - (?:lmdeploy|turbomind)[\w.]{{0,40}} - (?P<lmdeploy_level>[A-Z]{{4,8}}) - "
)


_AT_HEAD = re.compile(r"(?:# )?(?:\([A-Za-z][^()]{1,120}\) ){0,2}(?=DEBUG |INFO |WARNING |ERROR |\[[0-9]{4}-)")
_MAY_FOLLOW = re.compile(
    r"[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}|[0-9]T[0-9]{2}:[0-9]{2}:|\.[0-9]{3}\.[0-9]{3} [IWED]|[0-9]{4}-[0-9]{2}:[0-9]{2}|[IWEF][0-9]{4} |\[[0-9]{2}:[0-9]{2}:[0-9]{2}"
)
"""What every header holds."""


class _Kind(NamedTuple):
    clock: str
    read: Callable[[str], float | None]
    level: str | None


_KINDS: Mapping[str, _Kind] = {
    "vllm": _Kind("vllm", _year_day, "vllm_level"),
    "sglang": _Kind("sglang", _absolute, None),
    "hours": _Kind("sglang", _time_of_day, None),
    "rust": _Kind("rust", _absolute, "rust_level"),
    "elapsed": _Kind("llama.cpp", _elapsed, "elapsed_level"),
    "american": _Kind("tensorrt-llm", _american, "american_level"),
    "klog": _Kind("klog", lambda text: _year_day(f"{text[0:2]}-{text[2:]}"), None),
    "lmdeploy": _Kind("lmdeploy", _absolute, "lmdeploy_level"),
}

_KIND_OF_GROUP = {
    "source": "vllm", "ranks": "sglang", "hour_ranks": "hours", "rust_level": "rust", "elapsed_level": "elapsed", "american_level": "american",
    "klog": "klog", "lmdeploy_level": "lmdeploy",
}  # fmt: skip
"""Last group of each header -> its layout."""
_WHOLE_SECONDS = len("MM-DD HH:MM:SS")

STAMP_ANCHORS: Mapping[str, re.Pattern[bytes]] = {
    "vllm": re.compile(rb"(?:DEBUG|INFO|WARNING|ERROR) [0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"),
    "sglang": re.compile(rb"\[(?:[0-9]{4}-[0-9]{2}-[0-9]{2} )?[0-9]{2}:[0-9]{2}:[0-9]{2}"),
    "rust": re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"),
    "llama.cpp": re.compile(rb"[0-9]\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} [IWED] "),
    "tensorrt-llm": re.compile(rb"\[[0-9]{2}/[0-9]{2}/[0-9]{4}-[0-9]{2}:[0-9]{2}"),
    "klog": re.compile(rb"[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} "),
    "lmdeploy": re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} - "),
}
"""Clock -> what a line with such a stamp holds; cheap, to find the last one of a block."""


# --- carriers -----------------------------------------------------------------------------------------------------------

_ANSI = re.compile(r"(?:\x1b|#033|\^\[)(?:\[[0-9;:?]{0,24}[ -/]{0,2}[@-~]|[@-Z\\-_])|\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m")
"""Codes of a terminal; a paste may have lost the escape character of those that colour."""
_CHANNEL = re.compile(
    r"(?:\x1b\[[0-9;]{0,12}m)?(?P<compose>[\w./@:-]{1,100}) {1,40}\| |\[(?P<pod>(?:pod|container)/[\w./:-]{1,200})\] |(?P<stern>[a-z0-9][a-z0-9.-]{2,60}-(?:[a-z0-9]{4,10}-[a-z0-9]{3,5}|[0-9]{1,3})) [a-z0-9][a-z0-9-]{0,40} (?=\(|\[|INFO|WARNING|ERROR|DEBUG|Loading |Capturing |Traceback)"
)
_CARRIERS: tuple[tuple[re.Pattern[str], Callable[[str], float | None]], ...] = (
    (re.compile(rf"(?:<[0-9]{{1,3}}>1? ?)?(?P<stamp>{_ISO})(?: std(?:out|err) [FP])?(?=[ \t:])"), _absolute),
    (re.compile(r"(?:<[0-9]{1,3}>)?(?P<stamp>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?) "), _syslog),
    (re.compile(r"\[?(?P<stamp>1[0-9]{9}(?:\.[0-9]{1,9})?)\]?[ :]"), float),
)  # fmt: skip
_CARRIER_HEADS = frozenset("0123456789<[")
"""What stamps of carriers begin with, but for the names of months."""
_MESSAGE_KEYS = ("message", "log", "msg", "MESSAGE", "text", "line", "body", "event")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP")
_LEVEL_KEYS = ("levelname", "level", "severity")
_CHANNEL_KEYS = ("pod_name", "pod", "container_name", "container")
_RANK = re.compile(r"\((?P<name>[A-Za-z][\w.-]{0,60})(?P<fields>(?:,? [a-z_]{1,20}=[^ ,)]{1,64}){1,5})\)")
_FIELD = re.compile(r"([a-z_]+)=([^ ,)]+)")


def split_line(raw: bytes) -> Iterator[Line]:
    """The logged lines in one physical line. Bounded work, never an exception."""
    text = raw[:_LONGEST_LINE].decode("utf-8", "replace")
    channel = ""
    match = _CHANNEL.match(text) if _may_name_a_channel(text) else None
    if match is not None:
        channel = match.group("compose") or match.group("pod") or match.group("stern")
        text = text[match.end() :]
    carried = None
    if text[:1] == "{" or text[:1] == " ":
        record = _json_record(text)
        if record is not None:
            text, carried, level, pod = record
            for line in text.splitlines()[:_MOST_PIECES]:
                for piece in _pieces(_plain(line), carried, channel or pod):
                    yield piece if piece.level else piece._replace(level=level)
            return
    yield from _pieces(_plain(text), None, channel)


def _may_name_a_channel(text: str) -> bool:
    """A cheap look at what most lines begin with: ``INFO``, ``(Worker_TP0``, a bar."""
    first = text[:1]
    return first.islower() or first.isdigit() or first in "[\x1b" or "| " in text[:150]


def _plain(text: str) -> str:
    """Without the codes that colour a terminal; what escape characters remain are no codes."""
    return (
        _ANSI.sub("", text).replace("\x1b", "")
        if "\x1b" in text or "[0m" in text or "#033" in text or "^[" in text
        else text
    )


def _pieces(text: str, carried: float | None, channel: str) -> Iterator[Line]:
    """Split at every header; what stands before the first one is a line of its own when it is more than a prefix."""
    if carried is None and (text[:1] in _CARRIER_HEADS or text[:3] in _MONTHS):
        for pattern, read in _CARRIERS:
            match = pattern.match(text)
            if match is not None:
                carried = _read(read, match.group("stamp"))
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
    """All headers in a line. Most lines have the one of vLLM, at their head; only where more may follow is the rest searched."""
    first = _AT_HEAD.match(text)
    if first is not None:
        first = _HEADERS.match(text, first.end())
        if first is not None and not _MAY_FOLLOW.search(text, first.end()):
            return [first]
    elif not _MAY_FOLLOW.search(text):
        return []
    return list(islice(_HEADERS.finditer(text), _MOST_PIECES))


def _logged(match: re.Match[str], text: str, position: int, end: int, carried: float | None, channel: str) -> Line:
    name = _KIND_OF_GROUP[match.lastgroup or ""]
    kind, stamp = _KINDS[name], match.group(name)
    start = match.start()
    ranks = ""
    if name in ("sglang", "hours"):
        ranks = match.group("ranks" if name == "sglang" else "hour_ranks").strip()
    elif name == "american":
        ranks = match.group("trt_rank") or ""
    elif start > position:
        ranks = _rank(text[max(position, start - 200) : start])
    return Line(
        text[match.end() : end].strip(),
        _read(kind.read, stamp),
        kind.clock,
        _decimals(stamp, name),
        stamp,
        carried,
        ranks,
        match.group(kind.level) if kind.level else "",
        channel,
    )


def _decimals(stamp: str, name: str) -> int:
    """Digits of a stamp behind the point."""
    if len(stamp) <= _WHOLE_SECONDS:
        return 0
    if name == "elapsed":
        return 6
    point = max(stamp.rfind("."), stamp.rfind(","))
    return len(stamp[point + 1 :].rstrip("Z")) if point >= 0 else 0


@lru_cache(maxsize=4096)
def _read(read: Callable[[str], float | None], stamp: str) -> float | None:
    try:
        return read(stamp)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def _rank(text: str) -> str:
    """The process that names itself last in a prefix such as ``(EngineCore_DP0 pid=7) (Worker_TP1 pid=9) ``."""
    found = None
    for found in _RANK.finditer(text):  # noqa: B007  the last one is wanted
        pass
    if found is None:
        return ""
    fields = dict(_FIELD.findall(found.group("fields")))
    wanted = [f"{key}={fields[key]}" for key in ("rank", "pid", "ip") if key in fields]
    return " ".join([found.group("name"), *wanted]) if wanted else ""


def _json_record(text: str) -> tuple[str, float | None, str, str] | None:
    """Message, stamp, level and container of a JSON record; None for what is none."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    inner = record.get("fields")
    places: list[Mapping[str, Any]] = [record, inner] if isinstance(inner, dict) else [record]
    message = _first_text(places, _MESSAGE_KEYS)
    if message is None:
        return None
    pods = record.get("kubernetes")
    channel = _first_text([*places, pods] if isinstance(pods, dict) else places, _CHANNEL_KEYS) or ""
    stamp = next((place[key] for place in places for key in _TIME_KEYS if key in place), None)
    target = record.get("target")
    if isinstance(target, str):
        message = f"{target[:200]}: {message}"
    return message, _json_time(stamp), (_first_text(places, _LEVEL_KEYS) or "").upper(), channel[:200]


def _first_text(places: list[Mapping[str, Any]], keys: tuple[str, ...]) -> str | None:
    for place in places:
        for key in keys:
            if isinstance(place.get(key), str):
                return str(place[key]).encode("utf-8", "replace").decode()
    return None


def _json_time(value: object) -> float | None:
    """Seconds since 1970 from ISO text or from a number of seconds, milliseconds, microseconds or nanoseconds."""
    if isinstance(value, str):
        iso = _absolute(value[:40])
        if iso is not None:
            return iso
        if not re.fullmatch(r"[0-9]{1,20}(?:\.[0-9]{1,9})?", value[:40]):
            return None
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    for scale in (1.0, 1e3, 1e6, 1e9):
        if 5e8 <= seconds / scale < 1e10:
            return seconds / scale
    return None
