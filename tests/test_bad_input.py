"""Files, configs and command lines that are hostile or merely untidy: one clear line each, in no time, and no hang."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from command import run
from hypothesis import given, settings
from hypothesis import strategies as st

from startup_model import EngineConfig, HardwareConfig, ModelConfig, Profile, predict
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.files import is_file, is_folder, read_json_object, write_atomically

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192,
}
NUMBERS = {
    name: LLAMA[name]
    for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
READERS: dict[str, Callable[[Path], object]] = {
    "model": ModelConfig.from_hf,
    "hardware": HardwareConfig.from_file,
    "profile": Profile.load,
    "json": lambda path: read_json_object(path, 2**20, "a test"),
}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Turn a test that waits for ever into one that fails."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 40)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def message_of(error: pytest.ExceptionInfo[StartupModelError]) -> str:
    """The message, checked to be one printable line of bounded length."""
    text = str(error.value)
    assert text.isprintable()
    assert len(text) <= 600
    return text


# --- files --------------------------------------------------------------------------------------------------------------

CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "blank": (b" \n\t ", "empty"),
    "cut off": (json.dumps(LLAMA).encode()[:-20], "not valid JSON .* is the file truncated"),
    "a list": (b"[1, 2]", r"a JSON list \(\[1, 2\]\), not an object"),
    "a number": (b"3", "a JSON int"),
    "null": (b"null", "a JSON NoneType"),
    "a text": (b'"x"', "a JSON str"),
    "zeros": (bytes(1000), "not valid JSON"),
    "latin-1": ('{"a": "é"}'.encode("latin-1"), "not UTF-8"),
    "binary": (bytes(range(256)), "not UTF-8|not valid JSON"),
    "100k brackets": (b"[" * 100_000, "nested too deeply"),
    "100k closed brackets": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "100k braces": (b'{"a":' * 100_000, "nested too deeply"),
    "5000 digits": (b'{"hidden_size": ' + b"9" * 5000 + b"}", "a number of more than 4300 digits"),
    "a million digits": (b'{"hidden_size": ' + b"9" * 10**6 + b"}", "a number of more than 4300 digits"),
    "half a character": (b'{"_name_or_path": "\\ud800"}', "contains an unpaired surrogate"),
    "a python literal": (b"{'num_hidden_layers': 3}", "not valid JSON"),
    "html": (b"<!doctype html><html>", "not valid JSON"),
    "two objects": (b"{} {}", "not valid JSON"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CONTENTS)
def test_damaged_files_are_refused_with_their_name_and_a_remedy(tmp_path: Path, reader: str, name: str) -> None:
    content, message = CONTENTS[name]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    begin = time.perf_counter()
    with pytest.raises(InputFileError, match=rf"config\.json: .*({message})") as refused:
        READERS[reader](path)
    assert message_of(refused).rsplit(" ", 1)
    assert time.perf_counter() - begin < 5.0


@pytest.mark.parametrize("reader", READERS)
def test_pipes_devices_folders_loops_and_giants_are_neither_read_nor_waited_for(tmp_path: Path, reader: str) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with (tmp_path / "giant.json").open("wb") as file:
        file.truncate(10**9)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.json")) if len(str(tmp_path)) < 80 else None
        begin = time.perf_counter()
        for name, message in {
            "pipe": "not a regular file",
            "zero": "not a regular file",
            "loop": "symbolic links",
            "folder": "a folder|no such file",
            "giant": "1000000000 bytes, more than",
            "socket": "No such device|no such file",
            "absent": "no such file",
            "new\nline": "no such file",
        }.items():
            with pytest.raises(InputFileError, match=message) as refused:
                READERS[reader](tmp_path / f"{name}.json")
            assert "give" in message_of(refused)
        assert time.perf_counter() - begin < 5.0


def test_a_pipe_in_the_place_of_a_config_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputFileError, match="not a regular file"):
        ModelConfig.from_hf(tmp_path)


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 5000, "a\0b", "\udce9", "\n"])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, name: str) -> None:
    for read in (HardwareConfig.from_file, lambda path: read_json_object(path, 9, "a test")):
        with pytest.raises(InputFileError) as refused:
            read(tmp_path / f"{name}.json")
        message_of(refused)
    assert not is_file(tmp_path / name)
    assert not is_folder(tmp_path / name)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux")
@pytest.mark.parametrize("name", ["/proc/self/mem", "/proc/self/maps", "/proc/self/environ", "/dev/null", "/dev/tty"])
def test_files_of_the_kernel_do_no_harm(name: str) -> None:
    with pytest.raises(InputFileError) as refused:
        read_json_object(Path(name), 1000, "a test")
    assert name in message_of(refused)


def test_a_byte_order_mark_and_utf_16_are_read(tmp_path: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-8"):
        (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"_name_or_path": "é 😀"}), encoding=encoding)
        assert ModelConfig.from_hf(tmp_path).num_hidden_layers == 32


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "old")
    for text, where in (("\ud800", path), ("new", tmp_path / "nowhere" / "x.json"), ("new", tmp_path / ("x" * 300))):
        with pytest.raises(InputFileError, match="cannot be written") as refused:
            write_atomically(where, text)
        message_of(refused)
    with pytest.raises(InputFileError, match="cannot be written"):
        write_atomically(tmp_path / "a\0b", "new")
    for place in (tmp_path, Path(os.devnull)):
        with pytest.raises(InputFileError, match="not a regular file"):
            write_atomically(place, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


# --- configs ------------------------------------------------------------------------------------------------------------

BAD_SIZES: dict[str, Any] = {
    "zero": 0,
    "negative": -1,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "minus infinite": -float("inf"),
    "fraction": 1.5,
    "text": "32",
    "true": True,
    "10^30": 10**30,
    "10^5000": 10**5000,
    "minus 10^5000": -(10**5000),
    "1e300": 1e300,
    "list": [32],
    "dict": {"a": {"b": 1}},
}


@pytest.mark.parametrize("size", BAD_SIZES)
@pytest.mark.parametrize(
    "field",
    [
        *NUMBERS,
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "num_local_experts",
        "num_experts_per_tok",
    ],
)
def test_sizes_that_cannot_be_are_refused_by_field_and_value(field: str, size: str) -> None:
    for config in (MIXTRAL, {"text_config": MIXTRAL, "model_type": "some_vlm"}):
        content = json.loads(json.dumps(config))
        content.get("text_config", content)[field] = BAD_SIZES[size]
        with pytest.raises(ConfigError, match=field) as refused:
            ModelConfig.from_hf(content)
        assert "; " in message_of(refused)


@pytest.mark.parametrize("field", NUMBERS)
def test_sizes_that_are_missing_are_named(field: str) -> None:
    if field == "intermediate_size":
        return  # some families derive it
    for source in (ModelConfig.from_hf, ModelConfig.model_validate):
        data = {
            name: value
            for name, value in (LLAMA if source == ModelConfig.from_hf else NUMBERS).items()
            if name != field
        }
        with pytest.raises(ConfigError, match=f"{field}: missing; give the") as refused:
            source(data)
        message_of(refused)


def test_heads_that_do_not_divide_are_refused() -> None:
    for changes in (
        {"num_attention_heads": 24, "num_key_value_heads": 7},
        {"num_attention_heads": 31},
        {"num_key_value_heads": 64},
    ):
        with pytest.raises(ConfigError, match="heads") as refused:
            ModelConfig.from_hf(LLAMA | changes)
        message_of(refused)


def test_an_unknown_architecture_is_read_as_a_usual_decoder_and_says_so() -> None:
    model = ModelConfig.from_hf(LLAMA | {"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]})
    assert model.parameters == ModelConfig.from_hf(LLAMA).parameters
    assert "'BrandNewForCausalLM' is not in the table of families" in model.assumptions[0]
    with pytest.raises(ConfigError, match="num_hidden_layers: missing"):
        ModelConfig.from_hf({"model_type": "brand_new"})


@pytest.mark.parametrize(
    "changes",
    [
        {"text_config": 3},
        {"text_config": []},
        {"model_type": 3},
        {"model_type": ["llama"]},
        {"architectures": [[]], "num_hidden_layers": None},
        {"torch_dtype": 3},
        {"dtype": "bfloat61", "torch_dtype": None},
        {"torch_dtype": {}},
        {"tie_word_embeddings": "yes"},
        {"quantization_config": 3},
        {"quantization_config": {"quant_method": []}},
        {"quantization_config": {"quant_method": "gptq", "bits": -4}},
        {"quantization_config": {"quant_method": "gptq", "bits": 10**30}},
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": 3}}},
        {"quantization_config": {"quant_method": "never heard of"}},
        {"head_dim": "x"},
        {"attention_bias": []},
        {"num_key_value_heads": [8]},
    ],
)  # fmt: skip
def test_garbage_inside_a_config_is_refused_in_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(StartupModelError) as refused:
        ModelConfig.from_hf(LLAMA | changes)
    assert next(iter(changes)).split("_")[0] in message_of(refused) or "num_hidden_layers" in message_of(refused)


NAMES = st.sampled_from(
    [
        *LLAMA,
        *("text_config", "vision_config", "quantization_config", "layer_types", "num_experts", "n_routed_experts", "head_dim"),
        *("num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace", "sliding_window", "kv_lora_rank", "mlp_only_layers"),
        *("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "block_configs", "hybrid_override_pattern", "rope_scaling"),
        *("ssm_cfg", "attn_config", "tie_word_embeddings", "state_size", "mamba_d_state", "num_kv_shared_layers", "decoder_sparse_step"),
        *("quant_method", "bits", "group_size", "config_groups", "weight_block_size", "depth", "patch_size", "image_size"),
    ]
)  # fmt: skip
TYPES = st.sampled_from(
    [
        *("llama", "mixtral", "qwen2", "qwen2_moe", "qwen3_moe", "qwen3_next", "deepseek_v3", "gpt_oss", "gemma2", "gemma3", "gemma3n"),
        *("falcon", "falcon_h1", "mamba", "mamba2", "jamba", "bamba", "granitemoehybrid", "nemotron_h", "phi3", "dbrx", "opt", "bloom"),
        *("gpt2", "gptj", "gpt_neox", "mpt", "chatglm", "cohere", "llama4", "mllama", "qwen2_vl", "llava", "glm4_moe", "minimax", "x"),
    ]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, 1, 2, 3, 8, 64, 1000, -1, 10**9, 10**30, 0.5, 2.0, float("nan"), float("inf"), "", "fp8", "gptq"]
    )
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | TYPES
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=6), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(
    base=st.sampled_from([{}, LLAMA, MIXTRAL]),
    model_type=TYPES,
    changes=st.dictionaries(NAMES | st.text(max_size=6), JSON, max_size=6),
)
def test_any_config_gives_a_model_or_the_librarys_own_error(
    base: dict[str, Any], model_type: str, changes: dict[str, Any]
) -> None:
    for content in (base | {"model_type": model_type} | changes, {"text_config": base | changes}):
        try:
            model, message = ModelConfig.from_hf(content), ""
        except StartupModelError as refused:
            model, message = None, str(refused)
        assert message.isprintable()
        assert len(message) <= 600
        assert model is None or 0 < model.parameters <= 10**15


def test_a_config_of_many_large_parts_does_not_take_long() -> None:
    begin = time.perf_counter()
    for name in ("layer_types", "architectures", "block_configs", "mlp_only_layers", "quantization_config"):
        for value in ([1] * 10**6, ["x" * 10**6], {str(i): i for i in range(10**5)}, [LLAMA] * 10**5):
            try:
                ModelConfig.from_hf(LLAMA | {name: value})
            except StartupModelError as refused:
                message = str(refused)
                assert len(message) <= 600
    assert time.perf_counter() - begin < 10.0


# --- what does not fit together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "gpus", "message"),
    [
        (64, 64, r"tp = 64: more ranks than attention heads of .*, 32; choose a divisor of 32"),
        (3, 8, r"tp = 3: must divide the attention heads of .*, 32; choose a divisor of 32"),
        (16, 8, r"tp x pp x dp = 16: more ranks than accelerators, 1 node\(s\) x 8 of h100-sxm; .*gpus=16"),
    ],
)
def test_parallel_degrees_that_do_not_fit_are_refused(tp: int, gpus: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        predict(LLAMA, HardwareConfig.preset("h100-sxm", gpus=gpus), EngineConfig(tp=tp))
    message_of(refused)


@pytest.mark.parametrize("value", [None, 3, b"x", [], object()])
def test_inputs_of_predict_of_other_kinds_are_refused(value: Any) -> None:
    for arguments in ((value, "h100-sxm"), (LLAMA, value)):
        with pytest.raises(ConfigError) as refused:
            predict(*arguments)
        message_of(refused)
    if value is not None:
        with pytest.raises(ConfigError, match="engine_cfg"):
            predict(LLAMA, "h100-sxm", value)


# --- the command line ---------------------------------------------------------------------------------------------------


MODEL = ("--model", "meta-llama/Llama-2-7b-hf")
NODE = ("--hardware", "h100-sxm")


@pytest.mark.parametrize(
    "arguments",
    [
        (*NODE, "--model", "no-such-model"),
        (*NODE, "--model", "nowhere/config.json"),
        (*NODE, "--model", "/dev/zero"),
        (*NODE, "--model", ""),
        (*NODE, "--model", "a\nb"),
        (*NODE,),
        (*MODEL,),
        (*MODEL, "--hardware", "no-such-gpu"),
        (*MODEL, "--hardware", "/dev/zero"),
        (*MODEL, "--hardware", "nowhere.json"),
        (*MODEL, *NODE, "--engine", "vllm serve a/b -tp x"),
        (*MODEL, *NODE, "--engine", "ls -l"),
        (*MODEL, *NODE, "--engine", "vllm serve 'a"),
        (*MODEL, *NODE, "--engine", ""),
        (*MODEL, *NODE, "--engine", "vllm serve a/b -tp 3"),
        (*MODEL, *NODE, "--engine-version", "latest"),
        (*MODEL, *NODE, "--page-cache", "warm"),
        (*MODEL, *NODE, "--compile-cache", "hot"),
        (*MODEL, *NODE, "--storage", "floppy"),
        (*MODEL, *NODE, "--storage", "local_nvme=3 gb/s"),
        (*MODEL, *NODE, "--storage", "=="),
        (*MODEL, *NODE, "--gpus", "-1"),
        (*MODEL, *NODE, "--gpus", "many"),
        (*MODEL, *NODE, "--gpus", "9" * 5000),
        (*MODEL, *NODE, "--level", "2"),
        (*MODEL, *NODE, "--level", "nan"),
        (*MODEL, *NODE, "--safety-factor", "inf"),
        (*MODEL, *NODE, "--include", "lunch"),
        (*MODEL, *NODE, "--profile", "nowhere.json"),
        (*MODEL, *NODE, "--profile", "/dev/zero"),
        (*MODEL, *NODE, "--no-such-option"),
    ],
)  # fmt: skip
def test_bad_input_on_the_command_line_ends_with_status_2_and_one_line(
    arguments: tuple[str, ...],
) -> None:
    status, out, err = run("predict", *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("startup-model: ")
    assert err.count("\n") == 1
    assert len(err) <= 700
    assert "Traceback" not in err


def test_files_on_the_command_line_that_are_damaged_end_with_status_2(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for content, message in CONTENTS.values():
        path.write_bytes(content)
        for option, other in (("--model", NODE), ("--hardware", MODEL), ("--profile", (*MODEL, *NODE))):
            status, _, err = run("predict", *other, option, str(path))
            assert (status, err.count("\n")) == (2, 1), (content[:50], message)
