"""What a checkpoint holds, in a folder or on a hub, from its index and its safetensors headers; no tensor is ever read.

A safetensors file begins with eight little-endian bytes, the length of a JSON header with dtype, shape and data_offsets
of every tensor (format description of the safetensors library). Reading is bounded to that header.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from startup_model.errors import ConfigError, InputFileError, shown
from startup_model.files import is_file, open_regular, parse_json_object, read_json_object

INDEX_NAME = "model.safetensors.index.json"
MAX_CONFIG = 16 * 2**20
_MAX_INDEX = 64 * 2**20  # the largest published ones are below 20 MB
_MAX_HEADER = 32 * 2**20  # the format allows 100 MB; headers of published shards are below 2 MB
_MAX_ALL_HEADERS = 128 * 2**20
_MAX_SHARDS = 10_000
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]{1,40} [^\n]{1,200}\n){0,8}?size ([0-9]{1,16})\n"
)
_TOKENIZERS = ("tokenizer.json", "vocab.json merges.txt", "tokenizer.model", "tiktoken.model", "tekken.json")
_OLD_WEIGHTS = (".bin", ".pt", ".pth")


class CheckpointFiles(NamedTuple):
    """Size of a checkpoint: bytes of all tensors, number of files that hold them, and where that was read."""

    tensor_bytes: int
    files: int
    source: str


def _unusable(path: Path, problem: str, what: str = "the file is damaged or truncated") -> InputFileError:
    return InputFileError(f"{path}: {problem}; {what}")


def measure_checkpoint(folder: Path) -> CheckpointFiles | None:
    """Size of the safetensors (else GGUF) checkpoint in ``folder``, or None when there is none.

    Headers win over the index's own total, which may be absent or stale; an index whose shards are all elsewhere still
    gives its total. Raises InputFileError for a damaged header or index, or a checkpoint of which shards are missing.
    """
    if is_file(folder / INDEX_NAME):
        return _indexed(folder, folder / INDEX_NAME)
    try:
        shards = sorted(path for path in folder.glob("*.safetensors") if is_file(path))
    except OSError as error:
        raise _unusable(folder, f"{error.strerror or error}", "give a folder that can be read") from None
    # Mistral ships the same weights a second time in one consolidated file, which engines do not read.
    shards = [path for path in shards if not path.name.startswith("consolidated")] or shards
    if len(shards) > _MAX_SHARDS:
        problem = f"{len(shards)} safetensors files, more than {_MAX_SHARDS}"
        raise _unusable(folder, problem, "give the folder of one model")
    pointers = [size for size in map(_pointer_size, shards) if size is not None]
    if shards and len(pointers) == len(shards):
        return CheckpointFiles(sum(pointers), len(shards), "Git LFS pointers")
    return _measured(shards) if shards else _measured_gguf(folder)


def _indexed(folder: Path, path: Path) -> CheckpointFiles | None:
    index = read_json_object(path, _MAX_INDEX, "a safetensors index")
    names = _shard_names(index, path)
    present = [name for name in names if is_file(folder / name) and _pointer_size(folder / name) is None]
    if len(present) == len(names):
        return _measured(folder / name for name in names)
    if present:
        absent = sorted(set(names) - set(present))
        problem = f"names {len(absent)} shard(s) that are not in the folder, first {shown(absent[0])}"
        raise _unusable(path, problem, "finish the download")
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, int | float) and not isinstance(total, bool) and 1 <= total < 2**53:
        return CheckpointFiles(int(total), len(names), "index metadata")
    return None


def _shard_names(index: dict[str, object], path: Path) -> list[str]:
    """Names of the shards in an index, checked to be plain file names of its own folder."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _unusable(path, "has no weight_map", "give the index that came with the checkpoint")
    for tensor, name in weight_map.items():
        if not isinstance(name, str):
            raise _unusable(path, f"the shard of {shown(tensor)} is {shown(name)}, not a name", "the index is damaged")
        if name != Path(name).name or name in ("", ".", ".."):
            problem = f"names the shard {shown(name)} outside its folder"
            raise _unusable(path, problem, "the index is damaged or hostile")
    names = sorted(set(weight_map.values()))
    if len(names) > _MAX_SHARDS:
        raise _unusable(path, f"names {len(names)} shards, more than {_MAX_SHARDS}", "the index is damaged")
    return names


def _measured_gguf(folder: Path) -> CheckpointFiles | None:
    """The one GGUF file of a folder, or its parts (``...-00001-of-00003.gguf``); None where there are several to choose from."""
    paths = sorted(path for path in folder.glob("*.gguf") if is_file(path))[: _MAX_SHARDS + 1]
    if len({re.sub(r"-[0-9]{5}-of-[0-9]{5}$", "", path.stem) for path in paths}) != 1:
        return None
    return CheckpointFiles(sum(path.stat().st_size for path in paths), len(paths), "GGUF file size")


def measure_tokenizer(folder: Path) -> int | None:
    """Bytes of the tokenizer's vocabulary in ``folder``: tokenizer.json, else the files that older tokenizers have."""
    for names in _TOKENIZERS:
        try:
            present = [folder / name for name in names.split() if is_file(folder / name)]
            sizes = [_pointer_size(path) or path.stat().st_size for path in present]
        except OSError:  # it went away in between
            sizes = []
        if sizes:
            return sum(sizes)
    return None


def _pointer_size(path: Path) -> int | None:
    """The size that a Git LFS pointer names (a clone without the large files has those in their place), else None."""
    with open_regular(path, "a file of a checkpoint") as file:
        if os.fstat(file.fileno()).st_size > 1024:
            return None
        match = _POINTER.match(file.read(1024) or b"")
    return int(match.group(1)) if match else None


def _measured(shards: Iterable[Path]) -> CheckpointFiles:
    tensors = headers = files = 0
    for path in shards:
        size, header = _tensor_and_header_bytes(path)
        tensors, headers, files = tensors + size, headers + header, files + 1
        if headers > _MAX_ALL_HEADERS:
            problem = f"the headers up to this file take {headers} bytes, more than {_MAX_ALL_HEADERS}"
            raise _unusable(path, problem, "this is not a checkpoint")
    return CheckpointFiles(tensors, files, "safetensors headers")


def tensor_bytes(path: Path) -> int:
    """Bytes of all tensors of one safetensors file, from its header.

    Raises InputFileError for a header that is longer than the file or the format allows, is no JSON object, or whose
    tensors overlap, leave gaps, or do not end where the file ends.
    """
    return _tensor_and_header_bytes(path)[0]


def _tensor_and_header_bytes(path: Path) -> tuple[int, int]:
    with open_regular(path, "a safetensors file") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise _unusable(path, f"header length {length} does not fit a file of {size} bytes")
        content = file.read(length)
    header = parse_json_object(content, str(path), "a safetensors header")
    data, position = size - 8 - length, 0
    spans = [_span(entry, name, data, path) for name, entry in header.items() if name != "__metadata__"]
    for start, end in sorted(spans):
        if start != position:
            raise _unusable(path, f"tensors overlap or leave a gap at byte {position}", "the file is damaged")
        position = end
    if position != data:
        raise _unusable(path, f"{data} bytes of data, but the tensors end at byte {position}", "the file is damaged")
    return position, length


def _span(entry: object, name: str, data: int, path: Path) -> tuple[int, int]:
    span = entry.get("data_offsets") if isinstance(entry, dict) else None
    start, end = span if isinstance(span, list) and len(span) == 2 else (None, None)
    if type(start) is int and type(end) is int and 0 <= start <= end <= data:
        return start, end
    raise _unusable(path, f"tensor {shown(name)} has data_offsets that do not lie in the file")


class HubModel(NamedTuple):
    """What a hub says about a model."""

    config: Mapping[str, Any]
    checkpoint_bytes: int | None
    checkpoint_files: int | None
    tokenizer_bytes: int | None


def read_hub(repository: str, revision: str | None = None, endpoint: str | None = None) -> HubModel:
    """Config, bytes of the tensors (safetensors headers by range requests, else sizes of the files) and size of the tokenizer.

    ``endpoint``: address of the hub; None: that of huggingface_hub, which also finds the token. Raises ConfigError when the extra is not installed,
    InputFileError when the hub, the model or its config.json cannot be read.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError
    except ModuleNotFoundError:
        problem = "reading from a hub needs huggingface_hub"
        raise ConfigError("model", f"hub:{repository}", problem, "pip install 'startup-model[hub]'") from None
    api = HfApi(endpoint=endpoint)
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True, timeout=30)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        with TemporaryDirectory(prefix="startup-model-") as folder:
            path = api.hf_hub_download(repository, "config.json", revision=info.sha, local_dir=folder)
            config = read_json_object(Path(path), MAX_CONFIG, "a model's config.json")
        try:
            metadata = api.get_safetensors_metadata(repository, revision=info.sha, timeout=30)
        except (NotASafetensorsRepoError, SafetensorsParsingError):
            weights = [size for name, size in sizes.items() if name.endswith(_OLD_WEIGHTS) and size]
        else:
            shards = metadata.files_metadata.values()
            weights = [sum(t.data_offsets[1] - t.data_offsets[0] for t in shard.tensors.values()) for shard in shards]
    except InputFileError:
        raise
    except Exception as error:  # the HTTP client, and so the type of a refused connection, changes with huggingface_hub
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        remedy = "check the id, the network and the token"
        raise InputFileError(f"hub:{repository}: cannot be read ({reason}); {remedy}") from None
    tokenizer = sizes.get("tokenizer.json") or sizes.get("tokenizer.model")
    return HubModel(config, sum(weights) or None, len(weights) or None, tokenizer or None)
