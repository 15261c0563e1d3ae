"""A model on a hub: its config.json and the headers of its files, never its weights. Needs the extra ``hub``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from startup_model.errors import ConfigError, InputFileError
from startup_model.files import read_json_object

__all__ = ["HubModel", "read_hub"]

_LARGEST_CONFIG = 16 * 2**20
_OLD_WEIGHTS = (".bin", ".pt", ".pth")


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
        raise ConfigError(
            "model", f"hub:{repository}", "reading from a hub needs huggingface_hub", "pip install 'startup-model[hub]'"
        ) from None
    api = HfApi(endpoint=endpoint)
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True, timeout=30)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        with TemporaryDirectory(prefix="startup-model-") as folder:
            path = api.hf_hub_download(repository, "config.json", revision=info.sha, local_dir=folder)
            config = read_json_object(Path(path), _LARGEST_CONFIG, "a model's config.json")
        try:
            metadata = api.get_safetensors_metadata(repository, revision=info.sha, timeout=30)
        except (NotASafetensorsRepoError, SafetensorsParsingError):
            old = [size for name, size in sizes.items() if name.endswith(_OLD_WEIGHTS) and size]
            bytes_, files = (sum(old), len(old)) if old else (None, None)
        else:
            tensors = [tensor for file in metadata.files_metadata.values() for tensor in file.tensors.values()]
            bytes_ = sum(tensor.data_offsets[1] - tensor.data_offsets[0] for tensor in tensors)
            files = len(metadata.files_metadata)
    except InputFileError:
        raise
    except Exception as error:  # the HTTP client, and so the type of a refused connection, changes with huggingface_hub
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputFileError(
            f"hub:{repository}: cannot be read ({reason}); check the id, the network and the token"
        ) from None
    tokenizer = sizes.get("tokenizer.json") or sizes.get("tokenizer.model")
    return HubModel(config, bytes_ or None, files or None, tokenizer or None)
