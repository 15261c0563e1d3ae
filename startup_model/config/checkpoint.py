"""What a checkpoint folder holds, from its index and its safetensors headers; no tensor is ever read.

A safetensors file begins with eight little-endian bytes, the length of a JSON header with dtype, shape and data_offsets
of every tensor (format description of the safetensors library). Reading is bounded to that header.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from startup_model.errors import InputFileError
from startup_model.files import parse_json_object, read_json_object

__all__ = ["CheckpointFiles", "measure_checkpoint", "measure_tokenizer", "tensor_bytes"]

INDEX_NAME = "model.safetensors.index.json"
_LARGEST_INDEX = 256 * 2**20
_LARGEST_HEADER = 100 * 10**6  # the limit of the format itself
_MOST_SHARDS = 10_000


class CheckpointFiles(NamedTuple):
    """Size of a checkpoint: bytes of all tensors, number of files that hold them, and where that was read."""

    tensor_bytes: int
    files: int
    source: str


def measure_checkpoint(folder: Path) -> CheckpointFiles | None:
    """Size of the safetensors checkpoint in ``folder``, or None when there is none.

    Headers win over the index's own total, which may be absent or stale; an index whose shards are all elsewhere still
    gives its total. Raises InputFileError for a damaged header or index, or a checkpoint of which shards are missing.
    """
    index_path = folder / INDEX_NAME
    if index_path.is_file():
        index = read_json_object(index_path, _LARGEST_INDEX, "a safetensors index")
        names = _shard_names(index, index_path)
        present = [name for name in names if (folder / name).is_file()]
        if len(present) == len(names):
            return CheckpointFiles(
                _sum_tensor_bytes(folder / name for name in names), len(names), "safetensors headers"
            )
        if present:
            missing = sorted(set(names) - set(present))
            raise InputFileError(
                f"{index_path}: names {len(missing)} shard(s) that are not in the folder, first {missing[0]}; finish the download"
            )
        metadata = index.get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(total, int | float) and not isinstance(total, bool) and 0 < total < 2**63:
            return CheckpointFiles(int(total), len(names), "index metadata")
        return None
    shards = sorted(path for path in folder.glob("*.safetensors") if path.is_file())[:_MOST_SHARDS]
    # Mistral ships the same weights a second time in one consolidated file, which engines do not read.
    shards = [path for path in shards if not path.name.startswith("consolidated")] or shards
    return CheckpointFiles(_sum_tensor_bytes(shards), len(shards), "safetensors headers") if shards else None


def measure_tokenizer(folder: Path) -> int | None:
    """Bytes of the tokenizer's vocabulary in ``folder``: tokenizer.json, else the files that older tokenizers have."""
    for names in (
        ("tokenizer.json",),
        ("vocab.json", "merges.txt"),
        ("tokenizer.model",),
        ("tiktoken.model",),
        ("tekken.json",),
    ):
        sizes = [(folder / name).stat().st_size for name in names if (folder / name).is_file()]
        if sizes:
            return sum(sizes)
    return None


def tensor_bytes(path: Path) -> int:
    """Bytes of all tensors of one safetensors file, from its header.

    Raises InputFileError for a header that is longer than the file or the format allows, is no JSON object, or whose
    tensors overlap, leave gaps, or reach beyond the file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(_LARGEST_HEADER, size - 8):
                raise InputFileError(
                    f"{path}: header length {length} does not fit a file of {size} bytes; the file is damaged or cut"
                )
            header = parse_json_object(file.read(length), str(path), "a safetensors header")
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from None
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        span = entry.get("data_offsets") if isinstance(entry, dict) else None
        if (
            not isinstance(span, list)
            or len(span) != 2
            or not all(isinstance(end, int) and not isinstance(end, bool) for end in span)
            or not 0 <= span[0] <= span[1] <= size - 8 - length
        ):
            raise InputFileError(
                f"{path}: tensor {name[:80]!r} has data_offsets that do not lie in the file; the file is damaged or cut"
            )
        spans.append((span[0], span[1]))
    position = 0
    for start, end in sorted(spans):
        if start != position:
            raise InputFileError(f"{path}: tensors overlap or leave a gap at byte {position}; the file is damaged")
        position = end
    return position


def _sum_tensor_bytes(paths: Iterable[Path]) -> int:
    return sum(map(tensor_bytes, paths))


def _shard_names(index: dict[str, object], path: Path) -> list[str]:
    """Names of the shards in an index, checked to be plain file names of its own folder."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputFileError(f"{path}: has no weight_map; give the index that came with the checkpoint")
    names = {str(name) for name in weight_map.values()}
    if len(names) > _MOST_SHARDS:
        raise InputFileError(f"{path}: names {len(names)} shards, more than {_MOST_SHARDS}; the index is damaged")
    for name in names:
        if name != Path(name).name or name in ("", ".", ".."):
            raise InputFileError(
                f"{path}: names the shard {name[:80]!r} outside its folder; the index is damaged or hostile"
            )
    return sorted(names)
