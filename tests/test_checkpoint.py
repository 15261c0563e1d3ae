"""Checkpoint folders: whole, damaged, unfinished and hostile."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from startup_model import ModelConfig
from startup_model.errors import InputFileError
from startup_model.models.checkpoint import INDEX_NAME, measure_checkpoint, measure_tokenizer, tensor_bytes

Spans = dict[str, tuple[int, int]]

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "torch_dtype": "bfloat16",
}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def header_of(spans: Spans) -> bytes:
    return json.dumps(
        {
            name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
            for name, (start, end) in spans.items()
        }
    ).encode()


def write_raw(path: Path, header: bytes, data: int = 0, length: int | None = None) -> Path:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(data))
    return path


def write_shard(path: Path, *sizes: int) -> Path:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    spans = {f"{path.stem}.{i}": (end - size, end) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))}
    return write_raw(path, header_of(spans), sum(sizes))


def write_index(folder: Path, names: list[Any], **metadata: Any) -> Path:
    path = folder / INDEX_NAME
    path.write_text(json.dumps({"metadata": metadata, "weight_map": {f"t{i}": name for i, name in enumerate(names)}}))
    return path


def test_headers_of_all_shards_are_summed_and_win_over_the_index(tmp_path: Path) -> None:
    write_shard(tmp_path / "model-1.safetensors", 100, 20)
    write_shard(tmp_path / "model-2.safetensors", 3)
    write_index(tmp_path, ["model-1.safetensors", "model-2.safetensors"], total_size=999)
    assert measure_checkpoint(tmp_path) == (123, 2, "safetensors headers")


def test_a_folder_without_index_is_measured_by_its_files(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", 5, 0, 7)
    write_shard(tmp_path / "consolidated.safetensors", 12)
    assert measure_checkpoint(tmp_path) == (12, 1, "safetensors headers")
    assert measure_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(InputFileError, match="File name too long"):
        measure_checkpoint(tmp_path / ("x" * 300))


def test_metadata_of_a_header_is_no_tensor(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})
    assert tensor_bytes(write_raw(tmp_path / "a.safetensors", header.encode() + b"   ", 4)) == 4


def test_an_index_without_its_shards_still_gives_its_total(tmp_path: Path) -> None:
    write_index(tmp_path, ["a.safetensors", "b.safetensors"], total_size=1000.0)
    assert measure_checkpoint(tmp_path) == (1000, 2, "index metadata")


@pytest.mark.parametrize("total", [None, "1000", True, -5, 0, 0.5, float("nan"), float("inf"), 10**30, [], {}])
def test_an_absurd_total_in_an_index_is_not_believed(tmp_path: Path, total: Any) -> None:
    write_index(tmp_path, ["a.safetensors"], total_size=total)
    assert measure_checkpoint(tmp_path) is None


def test_missing_shards_are_named(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.safetensors", 1)
    write_index(tmp_path, ["a.safetensors", "b.safetensors"])
    with pytest.raises(InputFileError, match=r"names 1 shard\(s\) .* 'b.safetensors'; finish the download"):
        measure_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../a.safetensors", "/etc/passwd", "a/b.safetensors", "", ".", "..", "a/", "x/../../y", 3, None, [], {"a": 1}],
)
def test_shards_outside_the_folder_and_names_that_are_none_are_refused(tmp_path: Path, name: Any) -> None:
    write_index(tmp_path, [name])
    with pytest.raises(InputFileError, match=r"index is damaged"):
        measure_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["x" * 300 + ".safetensors", "a\0b", "a\nb.safetensors", "💥"])
def test_odd_names_of_shards_do_no_harm(tmp_path: Path, name: str) -> None:
    write_index(tmp_path, [name], total_size=7)
    assert measure_checkpoint(tmp_path) == (7, 1, "index metadata")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": 3}', "{"]
)
def test_a_damaged_index_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX_NAME).write_text(content)
    with pytest.raises(InputFileError, match=INDEX_NAME):
        measure_checkpoint(tmp_path)


def test_too_many_shards_are_refused(tmp_path: Path) -> None:
    write_index(tmp_path, [f"{i}.safetensors" for i in range(10_001)])
    with pytest.raises(InputFileError, match="10001 shards"):
        measure_checkpoint(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_header_length_that_lies_is_found_without_allocating_it(tmp_path: Path, length: int) -> None:
    path = write_raw(tmp_path / "a.safetensors", header_of({"a": (0, 4)}), 4, length)
    with pytest.raises(InputFileError, match=f"header length {length} does not fit"):
        tensor_bytes(path)


def test_an_absurdly_long_header_in_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", b"{}", length=10**9)
    os.truncate(path, 2 * 10**9)
    with pytest.raises(InputFileError, match="header length 1000000000 does not fit"):
        tensor_bytes(path)


@pytest.mark.parametrize(
    ("spans", "data", "message"),
    [
        ({"a": (0, 4), "b": (2, 6)}, 6, "overlap"),
        ({"a": (0, 4), "b": (0, 4)}, 4, "overlap"),
        ({"a": (0, 4), "b": (5, 9)}, 9, "leave a gap at byte 4"),
        ({"a": (1, 4)}, 4, "leave a gap at byte 0"),
        ({"a": (0, 400)}, 4, "'a' has data_offsets that do not lie in the file"),
        ({"a": (0, 10**30)}, 4, "do not lie in the file"),
        ({"a": (-4, 0)}, 4, "do not lie in the file"),
        ({"a": (4, 0)}, 4, "do not lie in the file"),
        ({"a": (0, 4)}, 9, "9 bytes of data, but the tensors end at byte 4"),
    ],
)
def test_tensors_that_do_not_fill_the_file_exactly_are_refused(
    tmp_path: Path, spans: Spans, data: int, message: str
) -> None:
    path = write_raw(tmp_path / "a.safetensors", header_of(spans), data)
    with pytest.raises(InputFileError, match=message):
        tensor_bytes(path)


SPANS = (3, [0], [0, True], [0.0, 4.0], ["0", "4"], [0, 2, 4])


@pytest.mark.parametrize("entry", [3, None, [], {}, *({"data_offsets": span} for span in SPANS)])
def test_entries_without_offsets_are_refused(tmp_path: Path, entry: Any) -> None:
    path = write_raw(tmp_path / "a.safetensors", json.dumps({"a\n" * 500: entry}).encode(), 4)
    with pytest.raises(InputFileError, match="do not lie in the file") as refused:
        tensor_bytes(path)
    assert len(str(refused.value)) <= 600
    assert str(refused.value).isprintable()


def test_a_repeated_tensor_that_hides_another_is_found(tmp_path: Path) -> None:
    first, second = (f'"a": {{"dtype": "U8", "shape": [4], "data_offsets": {span}}}' for span in ([0, 4], [4, 8]))
    path = write_raw(tmp_path / "a.safetensors", f"{{{first}, {second}}}".encode(), 8)
    with pytest.raises(InputFileError, match="leave a gap at byte 0"):
        tensor_bytes(path)


@pytest.mark.parametrize("header", [b"[]", b"3", b"{" * 10, b'{"a":' * 60_000, b"\xff\xfe{}", b"\0" * 50, b'{"a": 1e'])
def test_headers_that_are_no_json_object_are_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(InputFileError, match=r"a\.safetensors"):
        tensor_bytes(write_raw(tmp_path / "a.safetensors", header))


@pytest.mark.parametrize("content", [b"", b"1234567", b"PK\x03\x04" + bytes(100)])
def test_files_that_are_no_safetensors_at_all_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(InputFileError, match="does not fit a file of"):
        measure_checkpoint(tmp_path)


def test_pipes_and_devices_in_the_place_of_shards_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").symlink_to("/dev/zero")
    (tmp_path / "c.safetensors").symlink_to(tmp_path / "c.safetensors")
    (tmp_path / "d.safetensors").mkdir()
    assert measure_checkpoint(tmp_path) is None
    for name in "abcd":
        with pytest.raises(InputFileError, match=f"{name}.safetensors"):
            tensor_bytes(tmp_path / f"{name}.safetensors")


def test_a_clone_without_its_large_files_is_measured_by_the_pointers(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_text(POINTER.format("0" * 64, 5000))
    (tmp_path / "tokenizer.json").write_text(POINTER.format("0" * 64, 9_000_000))
    assert measure_checkpoint(tmp_path) == (5000, 1, "Git LFS pointers")
    assert measure_tokenizer(tmp_path) == 9_000_000
    write_index(tmp_path, ["a.safetensors"], total_size=4900)
    assert measure_checkpoint(tmp_path) == (4900, 1, "index metadata")


def test_tokenizers_are_measured_by_their_files(tmp_path: Path) -> None:
    assert measure_tokenizer(tmp_path) is None
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("abc")
    assert measure_tokenizer(tmp_path) == 5
    (tmp_path / "tokenizer.json").write_bytes(bytes(7))
    assert measure_tokenizer(tmp_path) == 7


def test_a_folder_gives_the_model_its_sizes_on_disk(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_shard(tmp_path / "model.safetensors", 1000)
    model = ModelConfig.from_hf(tmp_path)
    assert (model.checkpoint_bytes, model.checkpoint_files) == (1000, 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "data_offsets", "__metadata__"]), inner),
            max_leaves=6,
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.integers(0, 20),
)  # fmt: skip
def test_any_content_gives_a_size_or_the_librarys_own_error(tmp_path: Path, header: bytes, data: int) -> None:
    path = write_raw(tmp_path / "a.safetensors", header, data)
    try:
        size, message = tensor_bytes(path), ""
    except InputFileError as refused:
        size, message = data, str(refused)
    assert size == data
    assert message.isprintable()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 50), min_size=1, max_size=10), st.randoms())
def test_the_order_of_tensors_in_a_header_does_not_matter(tmp_path: Path, sizes: list[int], random: Any) -> None:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    items = [(f"t{i}", (end - size, end)) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]
    random.shuffle(items)
    assert tensor_bytes(write_raw(tmp_path / "a.safetensors", header_of(dict(items)), sum(sizes))) == sum(sizes)
