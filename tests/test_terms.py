"""Terms: what their docstrings promise, what physics demands, and one formula for numbers, arrays and words."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model.formula import Expression, let, maximum, minimum
from startup_model.phases import TERMS, Term

ALL = sorted(TERMS.values(), key=lambda term: term.name)
FITTED = [term for term in ALL if term.coefficients]

positive = st.floats(1e-3, 1e6)


def arguments(term: Term, draw_value: float) -> dict[str, float]:
    return dict.fromkeys((*term.inputs, *term.coefficients), draw_value)


@pytest.mark.parametrize("term", ALL, ids=lambda t: t.name)
def test_every_argument_has_a_unit_and_every_term_an_equation_and_a_source(term: Term) -> None:
    text = term.function.__doc__ or ""
    assert "Equation: t = " in text
    assert "Source: " in text
    body = text.split("Equation:")[1]
    for name in (*term.inputs, *term.coefficients):
        described = re.search(rf"\b{name}\b[^\[\]]*\[[^\]]+\]", body)
        shared = "are those of graph_capture" in body
        assert described or shared, f"{term.name}: {name} has no unit in the docstring"


@pytest.mark.parametrize("term", ALL, ids=lambda t: t.name)
def test_the_equation_in_the_docstring_is_the_one_that_is_computed(term: Term) -> None:
    """The documented equation, evaluated as arithmetic, gives what the function gives."""
    text = " ".join((term.function.__doc__ or "").split("Equation: t = ")[1].split("\n\n")[0].split())
    main, *parts = re.split(r", with ", text)
    names: dict[str, object] = {"min": min, "max": max, "maximum": max}
    rng = np.random.default_rng(5)
    values = {name: float(rng.uniform(0.5, 3.0)) for name in (*term.inputs, *term.coefficients)}
    for part in re.split(r", (?=[a-z]+ = )", parts[0]) if parts else ():
        name, expression = part.split(" = ", 1)
        names[name.strip()] = eval(expression.replace("×", "*"), {}, names | values)  # noqa: S307  our own docstring
    documented = eval(main.replace("×", "*"), {}, names | values)  # noqa: S307
    computed = term.function(
        *(values[name] for name in term.inputs), **{name: values[name] for name in term.coefficients}
    )
    assert computed == pytest.approx(documented)


@pytest.mark.parametrize("term", FITTED, ids=lambda t: t.name)
def test_coefficients_declare_a_unit_and_a_neutral_value(term: Term) -> None:
    for meta in term.coefficients.values():
        assert meta.unit
        assert meta.absent >= 0.0


@pytest.mark.parametrize("term", ALL, ids=lambda t: t.name)
@given(data=st.data())
def test_broadcasting_equals_a_loop(term: Term, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*(positive for _ in term.inputs)), min_size=1, max_size=5))
    coefficients = {name: data.draw(positive) for name in term.coefficients}
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    together = np.broadcast_to(term.function(*columns, **coefficients), (len(rows),))
    one_by_one = [term.function(*row, **coefficients) for row in rows]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)


@pytest.mark.parametrize("term", FITTED, ids=lambda t: t.name)
@given(data=st.data())
def test_more_work_is_never_faster_and_more_bandwidth_never_slower(term: Term, data: st.DataObject) -> None:
    values = {name: data.draw(positive) for name in (*term.inputs, *term.coefficients)}
    if "workers" in values:
        values["workers"] += 1
    if "overlap" in values:
        values["overlap"] = data.draw(st.floats(0, 1))
    name = data.draw(st.sampled_from([name for name in term.inputs if name != "overlap"]))
    more = values | {name: values[name] * data.draw(st.floats(1.0, 10.0))}

    def seconds(v: dict[str, float]) -> float:
        return float(term.function(*(v[n] for n in term.inputs), **{n: v[n] for n in term.coefficients}))

    slack = 1e-9 * max(1.0, abs(seconds(values)))
    if name.endswith(("bandwidth", "flops")):
        assert seconds(more) <= seconds(values) + slack
    else:
        assert seconds(more) >= seconds(values) - slack


@pytest.mark.parametrize("term", FITTED, ids=lambda t: t.name)
@given(data=st.data())
def test_terms_are_linear_in_their_coefficients(term: Term, data: st.DataObject) -> None:
    """The calibration relies on it: the design matrix is the term called with unit vectors."""
    if term.name in ("weight_load", "first_request"):
        return  # linear only while nothing overlaps; the fit knows
    inputs = [data.draw(positive) for _ in term.inputs]
    coefficients = {name: data.draw(positive) for name in term.coefficients}
    zero = dict.fromkeys(term.coefficients, 0.0)
    columns = [term.function(*inputs, **(zero | {name: 1.0})) for name in term.coefficients]
    summed = sum(column * coefficients[name] for column, name in zip(columns, term.coefficients, strict=True))
    assert summed == pytest.approx(term.function(*inputs, **coefficients), rel=1e-9)


def test_weight_load_serial_and_overlapped() -> None:
    """13 GB at 0.6 GB/s and 8 GB/s by hand: 21.67 + 1.625 s one after the other, 21.67 s at the same time."""
    call = TERMS["weight_load"].function
    coefficients = {"base_seconds": 0.0, "storage_ratio": 1.0, "copy_ratio": 1.0, "seconds_per_file": 0.0}
    serial = call(13e9, 13e9, 2, 1, 0.0, 0.6e9, 8e9, 55e9, **coefficients)
    together = call(13e9, 13e9, 2, 1, 1.0, 0.6e9, 8e9, 55e9, **coefficients)
    assert serial == pytest.approx(13 / 0.6 + 13 / 8)
    assert together == pytest.approx(13 / 0.6)
    assert call(0.0, 13e9, 2, 1, 0.0, 0.6e9, 8e9, 4e9, **coefficients) == pytest.approx(
        13 / 4
    )  # the link is the slower one


def test_a_formula_prints_itself_with_names_and_with_numbers() -> None:
    term = TERMS["graph_trace"]
    assert term.formula() == "(base_seconds + seconds_per_layer × trace_layers) × slowdown"
    numbers = {"base_seconds": 0.18, "seconds_per_layer": 0.146, "trace_layers": 32.0, "slowdown": 1.0}
    assert term.formula(numbers) == "(0.18 + 0.146 × 32) × 1"


def test_named_parts_of_a_formula_are_written_out_behind_it() -> None:
    a, b = Expression("a"), Expression("b")
    product = let("product", a * b)
    assert str(product + 1) == "product + 1, product = a × b"
    assert let("product", 6.0) == 6.0
    assert str(minimum(a + b, 2) / (a - b)) == "min(a + b, 2) / (a - b)"
    assert str(1 - (a - b)) == "1 - (a - b)"
    assert str(2 / a * maximum(1, b)) == "2 / a × max(1, b)"
