"""Quantities as people type them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model.errors import StartupModelError
from startup_model.units import (
    format_bandwidth,
    format_bytes,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_flops,
    parse_seconds,
)

PARSERS: tuple[Callable[[float | str], float], ...] = (parse_bytes, parse_bandwidth, parse_flops, parse_seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80", 80.0),
        ("80 B", 80.0),
        ("80 bytes", 80.0),
        ("80 GB", 80e9),
        ("80GB", 80e9),
        ("80\u00a0GB", 80e9),
        (" 80 GB\n", 80e9),
        ("80GiB", 80 * 2**30),
        ("1.5 TiB", 1.5 * 2**40),
        ("80 KB", 80e3),
        ("80 kB", 80e3),
        ("80 Gb", 10e9),
        ("80 Gbit", 10e9),
        ("80 Gbits", 10e9),
        ("80 Gib", 10 * 2**30),
        ("1,000,000 B", 1e6),
        ("1_000_000", 1e6),
        ("1e3", 1e3),
        ("1.5E3 MB", 1.5e9),
        (".5 GB", 0.5e9),
        ("0", 0.0),
        ("8 EiB", 2.0**63),
        (85899345920, 80 * 2**30),
        (1.5, 1.5),
    ],
)
def test_sizes_are_read_with_bits_bytes_and_both_kinds_of_prefix(text: float | str, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [
        ("900 GB/s", 900e9),
        ("900GBps", 900e9),
        ("900 GB / s", 900e9),
        ("900 GB/sec", 900e9),
        ("3.5GiB/s", 3.5 * 2**30),
        ("10 Gbps", 1.25e9),
        ("10 Gb/s", 1.25e9),
        ("10 Gbit/s", 1.25e9),
        ("10 Mbps", 1.25e6),
        ("100 bps", 12.5),
        ("1 TB/s", 1e12),
        (5e9, 5e9),
    ],
)
def test_bandwidths_are_read_in_bytes_and_bits_per_second(text: float | str, bandwidth: float) -> None:
    assert parse_bandwidth(text) == bandwidth


def test_rates_and_times_are_read() -> None:
    assert parse_flops("989 TFLOPS") == parse_flops("989 TFLOP/s") == 989e12
    assert parse_flops("1 PFLOP") == 1e15
    assert parse_seconds("1.5 min") == parse_seconds("90 s") == parse_seconds(90) == 90.0
    assert parse_seconds("250 ms") == 0.25
    assert parse_seconds("5 µs") == parse_seconds("5 μs") == pytest.approx(5e-6)  # micro sign and Greek letter


@pytest.mark.parametrize("text", ["80 gb", "80 gib", "80 GIB", "80G", "80g", "80 mB", "10 E", "8e", "80 GB/s", "80 µB"])
def test_ambiguous_and_unknown_units_of_size_are_refused_with_the_spellings_that_are_known(text: str) -> None:
    with pytest.raises(StartupModelError, match=r"unit .*GB \(10\^9\) or GiB \(2\^30\), bits as Gb"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["900 GB", "900 GB/min", "10 ps", "1/s", "10 GB/h", "10 gbps", "10 GT/s", "/s", "s"])
def test_bandwidths_without_a_known_unit_per_second_are_refused(text: str) -> None:
    with pytest.raises(StartupModelError, match=r"'900 GB/s'|GB/s \(10\^9\)"):
        parse_bandwidth(text)


NO_QUANTITIES = (
    *("", "  ", "GB", "-1", "- 1 GB", "-5 s", "+80 GB", "0x50", "nan", "inf", "NaN GB", ".", "5.5.5", "1e GB", "80;GB"),
    *(
        "1,5 GB",
        "1,00",
        "1,0000",
        "1.000,5 GB",
        "1__0",
        "_1",
        "٣ GB",
        "８０ GB",
        "80 GB\n80",
        "1e999",
        "1e308",
        "\ud800",
    ),
    *(pytest.param(digit * 10**6, id=f"a million times {digit}") for digit in "8_,. e"),
    pytest.param("8" + " " * 10**5 + "GB", id="many blanks"),
    pytest.param("1" + ",000" * 10**5, id="many thousands"),
    pytest.param("1_" * 10**5, id="many underscores"),
)


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_what_is_no_quantity_is_refused_in_one_short_line(text: str) -> None:
    begin = time.perf_counter()
    for parse in PARSERS:
        with pytest.raises(StartupModelError) as refused:
            parse(text)
        assert len(str(refused.value)) <= 250
        assert str(refused.value).isprintable()
    assert time.perf_counter() - begin < 3.0


@pytest.mark.parametrize(
    "value", [True, None, b"80", [80], {}, object(), float("nan"), float("inf"), -1, -1e9, 10**400]
)
def test_values_of_other_kinds_and_out_of_range_are_refused(value: object) -> None:
    for parse in PARSERS:
        with pytest.raises(StartupModelError):
            parse(value)  # type: ignore[arg-type]


def test_minus_zero_becomes_zero() -> None:
    assert all(math.copysign(1.0, parse(-0.0)) == 1.0 for parse in PARSERS)


@given(st.floats(min_value=0, max_value=2.0**62))
def test_a_formatted_size_reads_back_to_half_a_per_cent(size: float) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.006, abs=0.51)


@given(st.floats(min_value=1, max_value=9e15))
def test_a_formatted_bandwidth_reads_back_to_half_a_per_cent(bandwidth: float) -> None:
    assert parse_bandwidth(format_bandwidth(bandwidth)) == pytest.approx(bandwidth, rel=0.006)


@given(st.floats(min_value=0, max_value=9e8))
def test_a_formatted_time_reads_back(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=0.006, abs=0.0006)


@given(st.integers(min_value=0, max_value=2**62), st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_bits_are_an_eighth_of_bytes(number: int, prefix: str) -> None:
    try:
        size = parse_bytes(f"{number} {prefix}B")
    except StartupModelError:
        return
    assert parse_bytes(f"{number} {prefix}b") == pytest.approx(size / 8)


@given(
    st.one_of(st.text(), st.from_regex(r"[0-9.,_eE+ -]{0,20}[kKMGTPEi]{0,3}[bBFLOPSit]{0,5}(/s|ps)?", fullmatch=True))
)
def test_any_text_gives_a_finite_number_or_the_librarys_own_error(text: str) -> None:
    for parse in PARSERS:
        try:
            number, message = parse(text), ""
        except StartupModelError as refused:
            number, message = 0.0, str(refused)
        assert math.isfinite(number)
        assert number >= 0
        assert message.isprintable()
        assert len(message) <= 600
