"""The configurations as values: frozen, hashable, strict, and with errors that name field, value and remedy."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from startup_model import EngineConfig, HardwareConfig, ModelConfig
from startup_model.errors import ConfigError, InputFileError, StartupModelError, UnknownNameError, shown
from startup_model.frozen import FrozenModel
from startup_model.versions import at_version, parse_version

NUMBERS: dict[str, Any] = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
NODE: dict[str, Any] = {"gpu_memory": "80 GiB", "gpu_memory_bandwidth": "3.35 TB/s"}

MAKERS: dict[str, Callable[[], FrozenModel]] = {
    "model": lambda: ModelConfig(**NUMBERS),
    "catalogue model": lambda: ModelConfig.from_catalogue("deepseek-ai/DeepSeek-V3"),
    "hybrid model": lambda: ModelConfig.from_catalogue("openai/gpt-oss-20b"),
    "hardware": lambda: HardwareConfig(**NODE, storage={"local_nvme": "3 GB/s"}, cpu={"model": "x", "cores": 8}),
    "preset": lambda: HardwareConfig.preset("h100-sxm", gpus=8),
    "engine": EngineConfig,
    "command": lambda: EngineConfig.from_command(
        "VLLM_USE_V1=1 OMP_NUM_THREADS=4 vllm serve a/b -tp 2 --port 3 --cuda-graph-sizes 1 2"
    ),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[], FrozenModel]:
    return MAKERS[request.param]


# --- values -------------------------------------------------------------------------------------------------------------


def test_dumps_read_back_to_an_equal_configuration(make: Callable[[], FrozenModel]) -> None:
    config = make()
    assert type(config).model_validate(config.model_dump()) == config
    assert type(config).model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert type(config).model_validate(MappingProxyType(config.model_dump())) == config
    assert type(config).model_validate(config) is config


def test_equal_configurations_hash_alike_and_copies_are_equal(make: Callable[[], FrozenModel]) -> None:
    config, other = make(), make()
    assert config == other
    assert hash(config) == hash(other)
    assert {config: 1}[other] == 1
    for twin in (copy.copy(config), copy.deepcopy(config), config.model_copy(), config.replace()):
        assert twin == config
        assert hash(twin) == hash(config)
    assert config != "something else"
    assert config != config.model_dump()


def test_hashes_do_not_travel_to_processes_where_texts_hash_differently(make: Callable[[], FrozenModel]) -> None:
    config = make()
    hash(config)
    there = pickle.loads(pickle.dumps(config))  # noqa: S301  what multiprocessing does
    assert there == config
    assert set(vars(there)) == set(type(config).model_fields)


def test_the_order_of_a_dict_does_not_count() -> None:
    one = EngineConfig(environment={"VLLM_A": "1", "VLLM_B": "2"})
    two = EngineConfig(environment={"VLLM_B": "2", "VLLM_A": "1"})
    assert one == two
    assert hash(one) == hash(two)


def test_nothing_can_be_assigned_or_deleted(make: Callable[[], FrozenModel]) -> None:
    config = make()
    field = next(iter(type(config).model_fields))
    for name in (field, "brand_new"):
        with pytest.raises(ConfigError, match=rf"{name} = 3: it cannot be assigned; make a copy with replace"):
            setattr(config, name, 3)
        with pytest.raises(ConfigError, match="it cannot be deleted"):
            delattr(config, name)


def test_replace_makes_a_validated_copy() -> None:
    engine = EngineConfig(tp=2)
    assert engine.replace(pp=3) == EngineConfig(tp=2, pp=3)
    assert engine.model_copy(update={"pp": 3}) == EngineConfig(tp=2, pp=3)
    assert engine == EngineConfig(tp=2)
    with pytest.raises(ConfigError, match="pp = 0: must be greater than or equal to 1"):
        engine.replace(pp=0)
    with pytest.raises(ConfigError, match=r"pp = 0"):
        engine.model_copy(update={"pp": 0})
    with pytest.raises(ConfigError, match=r"page_cahce: unknown field of EngineConfig .*; did you mean 'page_cache'"):
        engine.replace(page_cahce="hot")


def test_a_changed_copy_keeps_no_derived_facts_of_the_original() -> None:
    model = ModelConfig(**NUMBERS)
    before = (hash(model), model.parameters)
    for changed in (model.replace(vocab_size=1000), model.model_copy(update={"vocab_size": 1000})):
        assert (hash(changed), changed.parameters) != before
        assert changed.parameters == ModelConfig(**(NUMBERS | {"vocab_size": 1000})).parameters


def test_nested_configurations_may_be_dicts_or_objects() -> None:
    node = HardwareConfig.preset("h100-sxm")
    storage = {"local_nvme": "3 GB/s", "tier": "network_disk", "concurrent_starts": 4}
    assert node.replace(storage=storage) == node.replace(storage=node.storage.model_validate(storage))


# --- unknown names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ModelConfig(**NUMBERS, num_hiden_layers=3), "num_hiden_layers = 3: .*'num_hidden_layers'"),
        (lambda: ModelConfig(num_hiden_layers=3), "num_hiden_layers = 3: .*'num_hidden_layers'"),
        (lambda: HardwareConfig.preset("h100-sxm", gpuss=2), r"gpuss: unknown field of HardwareConfig \(value 2\).*'gpus'"),
        (lambda: HardwareConfig(**NODE, num_gpus=2), "num_gpus: .*'gpus'"),
        (lambda: EngineConfig(tensor_parallel=2), r"tensor_parallel: unknown field of EngineConfig \(value 2\).*'tp'"),
        (lambda: EngineConfig(tensor_parallel_size=2), "'tp'"),
        (lambda: EngineConfig(tensor_paralel_size=2), "'tp'"),
        (lambda: EngineConfig(pipeline_parallel_size=2), "'pp'"),
        (lambda: EngineConfig(max_model_length=2), "'max_model_len'"),
        (lambda: EngineConfig(eager=True), "'enforce_eager'"),
        (lambda: HardwareConfig(**NODE, storage={"local_nvm": 1}), r"storage\.local_nvm: unknown field of Storage .*'local_nvme'"),
        (lambda: HardwareConfig(**NODE, cpu={"coers": 1}), r"cpu\.coers: unknown field of Cpu .*'cores'"),
        (lambda: HardwareConfig(**NODE, storage={"what": {"ever": []}}), r"storage\.what: unknown .*the fields are page_cache"),
        (lambda: HardwareConfig.from_mapping({"preset": "h100-sxm", "gpuss": 2}), "gpuss.*'gpus'"),
        (lambda: EngineConfig().replace(tensor_parallel=2), "'tp'"),
    ],
)  # fmt: skip
def test_unknown_fields_are_refused_with_the_nearest_name(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[31m", "x" * 10_000, "é", "self", "cls", "_hash", "model_config", "\ud800", "a.b.c"]
)
@pytest.mark.parametrize(
    "build",
    [
        lambda fields: EngineConfig(**fields),
        lambda fields: EngineConfig().replace(**fields),
        lambda fields: HardwareConfig.preset("h100-sxm", **fields),
        lambda fields: HardwareConfig(**NODE, storage=fields),
        lambda fields: ModelConfig(**NUMBERS, **fields),
        lambda fields: ModelConfig.model_validate(NUMBERS | fields),
    ],
)  # fmt: skip
def test_odd_names_of_fields_are_refused_in_one_printable_line(build: Callable[[Any], object], name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build({name: 2})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= 600


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h200x", "did you mean 'h200'"),
        ("H100-SMX", "did you mean 'h100-sxm'"),
        ("warp drive", "known: .*JSON file"),
        ("", "known: "),
        ("x" * 5000, "known: "),
        ("h100\nsxm", "did you mean"),
    ],
)
def test_unknown_accelerators_are_refused_with_the_nearest_or_all_names(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message) as refused:
        HardwareConfig.preset(name)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("meta-llama/Llama-2-7b-hff", "did you mean 'meta-llama/Llama-2-7b-hf'.*config.json"),
        ("lama-2-7b-hf", "did you mean 'meta-llama/Llama-2-7b-hf'"),
        ("no such model at all", "known: .*config.json"),
        ("\n", "known: "),
        ("x" * 5000, "known: "),
    ],
)
def test_unknown_models_are_refused_with_the_nearest_or_some_names(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message) as refused:
        ModelConfig.from_catalogue(name)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= 600


# --- values that do not fit ---------------------------------------------------------------------------------------------

DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
LOOP: list[Any] = []
LOOP.append(LOOP)


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


class _ManyLines:
    def __repr__(self) -> str:
        return "a\nb\x1b[31m" * 100


ODD_VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "negative": -1,
    "fraction": 1.5,
    "10^30": 10**30,
    "10^5000": 10**5000,
    "minus 10^5000": -(10**5000),
    "text": "2",
    "long text": "x" * 10**6,
    "lines": "1\n2",
    "half a character": "\ud800",
    "bytes": b"2",
    "list": [],
    "long list": [10**5000] * 20_000,
    "list of huge numbers": [10**5000],
    "deep list": DEEP,
    "loop": LOOP,
    "dict": {"a": 10**5000},
    "dict with other keys": {1: 2, None: 3},
    "object": object(),
    "class": int,
    "unprintable": _Unprintable(),
    "many lines": _ManyLines(),
}
FIELDS = [
    *((EngineConfig, name, {}) for name in ("tp", "max_model_len", "gpu_memory_utilization", "swap_space", "capture_sizes")),
    *((EngineConfig, name, {}) for name in ("version", "engine", "dtype", "environment", "enforce_eager", "page_cache")),
    *((HardwareConfig, name, NODE) for name in ("gpus", "gpu_memory", "gpu_memory_bandwidth", "provision_s", "storage", "cpu")),
    *((HardwareConfig, name, NODE) for name in ("name", "gpu_flops")),
    *((ModelConfig, name, NUMBERS) for name in (*NUMBERS, "layers", "dtype", "tie_word_embeddings", "quantization")),
    *((ModelConfig, name, NUMBERS) for name in ("extra_parameters", "checkpoint_bytes", "assumptions", "num_experts")),
]  # fmt: skip


@pytest.mark.parametrize("kind", ODD_VALUES)
def test_values_of_the_wrong_kind_are_refused_in_one_printable_line_that_names_the_field(kind: str) -> None:
    for config, field, others in FIELDS:
        try:
            config(**(others | {field: ODD_VALUES[kind]}))
        except StartupModelError as refused:
            message = str(refused)
        else:
            message = field  # it fits, as None often does
        assert field in message, f"{config.__name__}.{field}"
        assert message.isprintable()
        assert len(message) <= 600


@pytest.mark.parametrize("data", [None, 3, "text", b"bytes", [1], [("tp", 2)], object()])
@pytest.mark.parametrize("config", [EngineConfig, HardwareConfig, ModelConfig])
def test_what_is_no_dict_is_no_configuration(config: type[FrozenModel], data: Any) -> None:
    with pytest.raises(ConfigError, match=config.__name__):
        config.model_validate(data)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"tp": 0}', '{"tp": 1e400}', "[" * 100_000, '{"tp": ' + "9" * 5000 + "}"]
)
def test_json_text_that_does_not_fit_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EngineConfig.model_validate_json(text)
    assert str(refused.value).isprintable()


def test_keys_that_are_no_names_are_refused() -> None:
    for data in ({1: 2}, {None: 2}, NODE | {3: 4}, {"storage": {1: 2}}):
        with pytest.raises(StartupModelError):
            HardwareConfig.from_mapping(data)  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("config", [EngineConfig, HardwareConfig, ModelConfig])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_dict_gives_a_configuration_or_the_librarys_own_error(
    config: type[FrozenModel], data: st.DataObject
) -> None:
    names = st.sampled_from([*config.model_fields, *NUMBERS, "preset"]) | st.text(max_size=10)
    fields = data.draw(st.dictionaries(names, JSON | st.sampled_from([1, 2, 64, "80 GB", "1 GB/s", {}]), max_size=8))
    base = {EngineConfig: {}, HardwareConfig: NODE, ModelConfig: NUMBERS}[config]
    for content in (fields, base | fields):
        try:
            built, message = config.model_validate(content), ""
        except StartupModelError as refused:
            built, message = None, str(refused)
        assert message.isprintable()
        assert len(message) <= 600
        assert built is None or config.model_validate(built.model_dump()) == built


# --- versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.10.1.1", (0, 10, 1, 1)),
        ("v0.10.1.1", (0, 10, 1, 1)),
        ("V0.10", (0, 10)),
        (" 0.10\n", (0, 10)),
        ("0.28.1rc2.dev7+gabc", (0, 28, 1)),
        ("0.10.1-rc1", (0, 10, 1)),
        ("0.11.0+cu129", (0, 11, 0)),
        ("0.11.0-cu129", (0, 11, 0)),
        ("0.8.5.post1", (0, 8, 5)),
        ("0.1.dev1+g0123abc.d20250101", (0, 1)),
        ("7", (7,)),
    ],
)
def test_versions_are_read(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version
    assert EngineConfig(version=text).version == text


NO_VERSIONS = (
    *("", " ", "latest", "nightly", "v", "0..1", "0.10.", "1.2.3.4.5.6", "9999999", "1!0.10", "0.10 (x)", "٠.١", ".1"),
    *("-1", "0.1\0", "0.1\ud800"),
    *(pytest.param(start + more * 50_000, id=f"many {more}") for start, more in (("", "1."), ("0", "a"), ("0", " "))),
)


@pytest.mark.parametrize("text", NO_VERSIONS)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"version = .*: not a version; write it such as '0\.10\.1\.1'"):
        parse_version(text)
    with pytest.raises(ConfigError, match="version"):
        EngineConfig(version=text)


@pytest.mark.parametrize("value", [None, 0.1, 10, [], (0, 10), b"0.10"])
def test_versions_of_other_kinds_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="version = "):
        parse_version(value)


def test_a_table_by_version_gives_the_last_entry_that_has_begun() -> None:
    table = [((0, 5), "a"), ((0, 10), "b"), ((0, 10, 2), "c")]
    assert [
        at_version(table, parse_version(text)) for text in ("0.4", "0.9.9", "0.10", "0.10.1", "0.10.2", "1.0")
    ] == list("aabbcc")


# --- errors as values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        StartupModelError("a message"),
        ConfigError("tp", 3, "it does not divide", "choose 2"),
        ConfigError("tp", _Unprintable(), "it does not fit"),
        UnknownNameError("model", "lama", ["llama", "opt"]),
        InputFileError("x.json: empty"),
    ],
)
def test_errors_travel_between_processes(error: StartupModelError) -> None:
    there = pickle.loads(pickle.dumps(error))  # noqa: S301  what multiprocessing does
    assert type(there) is type(error)
    assert str(there) == str(error)
    if isinstance(error, ConfigError):
        assert (there.field, there.problem, there.remedy) == (error.field, error.problem, error.remedy)
    assert str(copy.copy(error)) == str(error)


def test_messages_are_one_printable_line_of_bounded_length_whatever_they_quote() -> None:
    hostile = "a\nb\r\n\x1b[31m\ud800\u2028" * 1000
    for error in (
        StartupModelError(hostile),
        InputFileError(hostile),
        ConfigError(hostile, hostile, hostile, hostile),
        UnknownNameError(hostile, hostile, [hostile + str(i) for i in range(3)], hostile),
    ):
        assert str(error).isprintable()
        assert len(str(error)) <= 600


@given(st.one_of(JSON, st.binary(), st.integers(min_value=10**20), st.sets(st.integers()), st.complex_numbers()))
def test_any_value_is_shown_in_one_short_printable_piece(value: object) -> None:
    assert shown(value).isprintable()
    assert len(shown(value)) <= 80


SHOWN: list[tuple[object, str]] = [
    (3, "3"),
    (10**30, "about 10^30"),
    (-(10**30) + 1, "-about 10^30"),
    (10**5000, "about 10^5000"),
    ("a\nb", r"'a\nb'"),
    ([1, 2], "[1, 2]"),
    ((1,), "(1)"),
    ({"a": 1}, "{'a': 1}"),
    ([[[[1]]]], "[[...]]"),
    ([0] * 9, "a list of 9 items"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text for _, text in SHOWN])
def test_values_are_shown_as_they_are_typed_until_they_are_too_large(value: object, text: str) -> None:
    assert shown(value) == text
