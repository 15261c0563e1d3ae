"""Reading a model from a hub: a local server plays the hub and counts what is asked of it."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from startup_model import InputFileError, ModelConfig

pytest.importorskip("huggingface_hub")

SHA = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
TENSOR_BYTES = 50_000_000


def shard(name: str) -> bytes:
    """A safetensors file of which only the header is sent: the tensors would be 50 MB."""
    header = json.dumps(
        {name: {"dtype": "BF16", "shape": [TENSOR_BYTES // 2], "data_offsets": [0, TENSOR_BYTES]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header


FILES: dict[str, bytes] = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b"{}" * 1000,
    "model-00001-of-00002.safetensors": shard("a"),
    "model-00002-of-00002.safetensors": shard("b"),
    "model.safetensors.index.json": json.dumps(
        {
            "metadata": {"total_size": 1},
            "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
        }
    ).encode(),
}
SIZES = {name: len(content) + (TENSOR_BYTES if name.endswith(".safetensors") else 0) for name, content in FILES.items()}


class Hub(BaseHTTPRequestHandler):
    sent = 0
    weights_in_full = 0

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/models/org/model"):
            siblings = [{"rfilename": name, "size": SIZES[name], "blobId": "0" * 40} for name in FILES]
            self._send(
                json.dumps(
                    {"id": "org/model", "sha": SHA, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
                ).encode()
            )
            return
        name = path.rsplit("/", 1)[-1]
        if not path.startswith("/org/model/resolve/") or name not in FILES:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, asked = FILES[name], self.headers.get("Range")
        if name.endswith(".safetensors") and body and asked is None:
            Hub.weights_in_full += 1
        if asked is not None and body:
            first, last = asked.removeprefix("bytes=").split("-")
            piece = content[int(first) : int(last) + 1]
            self._send(piece, status=206, name=name)
            return
        self._send(content if body else b"", name=name, length=len(content))

    def _send(self, content: bytes, status: int = 200, name: str = "", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.send_header("ETag", f'"{name or "api"}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            Hub.sent += len(content)
            self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Hub.sent = Hub.weights_in_full = 0
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_config_sizes_and_tokenizer_are_read_and_no_weights(hub: str) -> None:
    model = ModelConfig.from_hub("org/model", endpoint=hub)
    assert model.name == "org/model"
    assert model.num_hidden_layers == 2
    assert model.checkpoint_bytes == 2 * TENSOR_BYTES  # the headers, not the index's own total
    assert model.checkpoint_files == 2
    assert model.tokenizer_bytes == 2000
    assert Hub.weights_in_full == 0
    assert Hub.sent < 20_000


def test_a_model_that_is_not_there_is_one_line(hub: str) -> None:
    with pytest.raises(InputFileError) as error:
        ModelConfig.from_hub("org/other", endpoint=hub)
    assert "hub:org/other" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_hub_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(InputFileError, match="hub:org/model: cannot be read"):
        ModelConfig.from_hub("org/model", endpoint="http://127.0.0.1:9")
