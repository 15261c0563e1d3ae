"""``EngineConfig.from_command``: what people paste, tidy, untidy and hostile."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from startup_model import EngineConfig
from startup_model.errors import ConfigError, StartupModelError

NOTHING: tuple[Any, ...] = (None, (), {})


def read(command: str) -> dict[str, Any]:
    """The fields that a command gives, empty ones and the engine's name aside."""
    config = EngineConfig.from_command(command)
    given = {name: getattr(config, name) for name in config.model_fields_set if name != "engine"}
    return {name: value for name, value in given.items() if value not in NOTHING}


# --- flags --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ("-tp 2", {"tp": 2}),
        ("-tp=2", {"tp": 2}),
        ("--tp 2", {"tp": 2}),
        ("--tensor-parallel-size=2", {"tp": 2}),
        ("--tensor_parallel_size 2", {"tp": 2}),
        ('--tensor-parallel-size "2"', {"tp": 2}),
        ("'--tensor-parallel-size' '2'", {"tp": 2}),
        ("--tensor-parallel 2", {"tp": 2}),
        ("-tp 2 -pp 3 -dp 4", {"tp": 2, "pp": 3, "dp": 4}),
        ("-tp 2 --tensor-parallel-size 4", {"tp": 4}),
        ("--max-model-len 8k --max-num-batched-tokens 8K", {"max_model_len": 8000, "max_num_batched_tokens": 8192}),
        ("--max-model-len 1.5k", {"max_model_len": 1500}),
        ("--max-model-len auto --max-num-seqs -1", {}),
        ("--gpu-memory-utilization .9", {"gpu_memory_utilization": 0.9}),
        ("--swap-space 4", {"swap_space": 4 * 2**30}),
        ("--kv-cache-memory-bytes 2G", {"kv_cache_memory_bytes": 2.0 * 2**30}),
        ("--enforce-eager", {"enforce_eager": True}),
        ("--enforce_eager=True", {"enforce_eager": True}),
        ("--enforce-eager false", {"enforce_eager": False}),
        ("--no-enforce-eager", {"enforce_eager": False}),
        ("--enforce-eager --no-enforce-eager", {"enforce_eager": False}),
        ("--no-enable-prefix-caching", {"prefix_caching": False}),
        ("--enable-prefix-caching=false", {"prefix_caching": False}),
        ("--enable-chunked-prefill False", {"chunked_prefill": False}),
        ("--enable-chunked-prefill --no-enable-chunked-prefill", {"chunked_prefill": False}),
        ("--cuda-graph-sizes 1 2 4", {"capture_sizes": (1, 2, 4)}),
        ("--cuda-graph-sizes 512", {"max_capture_size": 512}),
        ("--cudagraph-capture-sizes [1,2,4]", {"capture_sizes": (1, 2, 4)}),
        ("-O3", {"optimization_level": 3}),
        ("-O 3", {"optimization_level": 3}),
        ("-O=3", {"optimization_level": 3}),
        ("-O.level=3", {"optimization_level": 3}),
        ("-cc.cudagraph_mode none", {"cudagraph_mode": "none"}),
        ("--compilation-config.max_capture_size 64", {"max_capture_size": 64}),
        ("--compilation-config.cudagraph_capture_sizes '[1, 2]'", {"capture_sizes": (1, 2)}),
        (
            """--compilation-config '{"level": 3, "cudagraph_capture_sizes": [1, 2]}'""",
            {"optimization_level": 3, "capture_sizes": (1, 2)},
        ),
        (
            r'''--compilation-config "{\"cudagraph_mode\": \"FULL_AND_PIECEWISE\"}"''',
            {"cudagraph_mode": "full_and_piecewise"},
        ),
        ("--compilation-config '{\n  \"level\": 3\n}' -tp 2", {"optimization_level": 3, "tp": 2}),
    ],
)
def test_flags_are_read_in_every_spelling(flags: str, fields: dict[str, Any]) -> None:
    assert read(f"vllm serve a/b {flags}") == {"model": "a/b", **fields}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--dtype", "--dtype: missing, the flag needs a value"),
        ("--dtype --port 3", "--dtype: missing, the flag needs a value"),
        ("-tp", "--tensor-parallel-size: missing, the flag needs a value"),
        ("-tp x", "-tp = 'x': must be a whole number"),
        ("-tp 1e3", "-tp = '1e3': must be a whole number"),
        ("-tp ٣", "must be a whole number"),
        (f"-tp {'9' * 5000}", "must be a whole number"),
        ("-tp 0", "tp = 0: must be greater than or equal to 1"),
        ("-tp -1", "tp = -1: must be greater"),
        ("--enforce-eager=maybe", "--enforce-eager = 'maybe': must be true or false"),
        ("--max-model-len 32,768", "--max-model-len = '32,768': must be a whole number such as 8192"),
        ("--max-model-len 9999999999999999k", "must be a whole number such as"),
        ("--gpu-memory-utilization 0,9", "--gpu-memory-utilization = '0,9': must be a number"),
        ("--gpu-memory-utilization nan", "--gpu-memory-utilization = 'nan': must be a number"),
        ("--gpu-memory-utilization 1e400", "gpu_memory_utilization = inf: must be a finite number"),
        ("--gpu-memory-utilization 90", "gpu_memory_utilization = 90.0: must be less than or equal to 1"),
        ("--swap-space 1e30", "swap_space: .* is not a size in bytes"),
        ("--dtype float61", "dtype = 'float61': not a known name; did you mean 'float64'"),
        ("--load-format safetensor", "did you mean 'safetensors'"),
        ("--compilation-config '{\"level\": 3'", "--compilation-config = .*: must be a level 0-3 or a JSON object"),
        ("--compilation-config {}".format("[" * 50_000), "must be a level 0-3 or a JSON object"),
        ("--compilation-config '{\"level\": [3]}'", "must be a whole number"),
        ("--compilation-config '{\"cudagraph_mode\": {}}'", "cudagraph_mode = '{}': must be 'none', 'piecewise'"),
        ("--compilation-config '{\"cudagraph_capture_sizes\": [1e9, NaN]}'", "as a list of whole numbers"),
        ("-O.level=high", "-O.level = .*: must be a whole number"),
        ("-tp $TP", r"-tp = '\$TP': a shell variable .* replace it with its value"),
        ("-tp $(nvidia-smi -L | wc -l)", "a shell variable or substitution"),
        ("--x 'unclosed", "command = .*: unbalanced quotes .*; close them"),
    ],
)  # fmt: skip
def test_flags_that_cannot_be_are_refused_with_flag_value_and_remedy(flags: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read(f"vllm serve a/b {flags}")
    assert len(str(refused.value)) <= 600
    assert str(refused.value).isprintable()


def test_unused_flags_are_listed_once_and_by_name_only() -> None:
    command = """vllm serve a/b --port 8000 --port=8001 --served-model-name x y --hf-overrides '{"a": {"b": "c d"}}'
        --trust-remote-code --brand-new-flag value --another_new=secret extra --kv-transfer-config.role=both -v -tp2"""
    assert EngineConfig.from_command(command).unused_flags == (
        *(
            "--port",
            "--served-model-name",
            "--hf-overrides",
            "--trust-remote-code",
            "--brand-new-flag",
            "--another_new",
        ),
        *("(a word that belongs to no flag)", "--kv-transfer-config.role", "-v", "(an unknown flag)"),
    )


def test_a_model_may_stand_before_behind_or_in_a_flag() -> None:
    assert read("vllm serve --port 8000 a/b")["model"] == "a/b"
    assert read("vllm serve --model a/b -tp 2")["model"] == "a/b"
    assert read("vllm serve a/b --model c/d")["model"] == "c/d"
    assert read("vllm serve 'a folder/with blanks'")["model"] == "a folder/with blanks"
    assert "model" not in read("vllm serve -tp 2")


# --- starts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve a/b --dtype half",
        "/opt/venv/bin/vllm serve a/b --dtype half",
        "vllm.exe serve a/b --dtype half",
        "python -m vllm.entrypoints.openai.api_server --model a/b --dtype half",
        "python3 -m vllm.entrypoints.api_server --model=a/b --dtype=half",
        "python3 /usr/lib/python3/site-packages/vllm/entrypoints/openai/api_server.py --model a/b --dtype half",
        "python -m vllm.entrypoints.cli.main serve a/b --dtype half",
        "uv run vllm serve a/b --dtype half",
        "uvx vllm serve a/b --dtype half",
        "numactl --cpunodebind=0 vllm serve a/b --dtype half",
        "srun -N1 --gpus 8 vllm serve a/b --dtype half",
        "torchrun --nproc 8 -m vllm.entrypoints.openai.api_server --model a/b --dtype half",
        "sudo -E nohup vllm serve a/b --dtype half > x.log 2>&1 &",
        "time exec vllm serve a/b --dtype half",
        "$ vllm serve a/b --dtype half",
        "> vllm serve a/b --dtype half",
        "user@host:~$ vllm serve a/b --dtype half",
        "vllm serve a/b --dtype half | tee log.txt",
        "vllm serve a/b --dtype half|tee log.txt",
        "vllm serve a/b --dtype half>log",
        "vllm serve a/b >log 2>err --dtype half",
        "vllm serve a/b --dtype half;echo done",
        "vllm serve a/b --dtype half&& echo done",
        "vllm serve a/b --dtype half&",
        "vllm serve a/b --dtype half # --dtype float",
        "# --dtype float\nvllm serve a/b --dtype half",
        "cd /x; source bin/activate && vllm serve a/b --dtype half",
        "cd /x\npip install vllm\n\n\nvllm serve a/b --dtype half\nvllm serve c/d",
        "vllm serve a/b \\\n  --dtype half \\\n",
        "vllm serve a/b \\  \n  --dtype half \\\t\n",
        "vllm serve a/b \\\r\n  --dtype half \\\r\n\r\n",
        "vllm serve a/b ^\r\n --dtype half",
        "vllm serve a/b `\n --dtype half",
        "vllm serve \\\n a/b \\\n --dtype \\\n half \\",
        "vllm serve a/b\n  --dtype half",
        "vllm serve a/b \\\n  # --enforce-eager \\\n  --dtype half",
        "bash -c 'vllm serve a/b --dtype half'",
        'sh -lc "cd /x; vllm serve a/b --dtype half"',
        "\ufeffvllm\u00a0serve\u3000a/b --dty\u200bpe half",
        "vllm serve a/b –dtype half",
        "vllm serve a/b —dtype half",
        "vllm serve a/b ––dtype half",
        "vllm serve a/b −−dtype=half",
        "vllm serve “a/b” --dtype ‘half’",
        "MODEL=a/b\nTYPE=half\nvllm serve $MODEL --dtype ${TYPE}",
        "vllm serve ${MODEL:-a/b} --dtype ${TYPE-half}",
        "--model a/b --dtype half",
        "--dtype=half --model=a/b",
        '["vllm", "serve", "a/b", "--dtype", "half"]',
        "['--model=a/b','--dtype=half']",
        'args: ["--model", "a/b", "--dtype", "half"]',
        'args: [\n  "--model",\n  "a/b",  # the model\n  "--dtype=half"\n]',
        "args:\n- --model=a/b\n- --dtype=half\n",
        "  - --model\n  - a/b\n\n  # comment\n  - '--dtype'\n  - \"half\"\n",
        'command: ["vllm", "serve"]\nargs: ["a/b", "--dtype=half"]',
        "command:\n- vllm\n- serve\n- a/b\n- --dtype\n- half\nresources:\n  limits: {}",
        'command: ["/bin/sh","-c"]\nargs: ["vllm serve a/b --dtype half --trust-remote-code"]',
        "command: [sh, -c]\nargs:\n- |\n  cd /x\n  vllm serve a/b \\\n    --dtype half\nports: []",
        "command: vllm serve a/b --dtype half",
        '"args": [\n  "--model",\n  "a/b",\n  "--dtype=half"\n],',
    ],
)
def test_every_way_to_start_vllm_is_found(command: str) -> None:
    found = read(command)
    assert (found["model"], found["dtype"]) == ("a/b", "half")
    assert EngineConfig.from_command(command).engine == "vllm"


@pytest.mark.parametrize(
    "command",
    [
        "python -m sglang.launch_server --model-path a/b --tp 2",
        "python3 -m sglang.launch_server --model a/b --tensor-parallel-size=2",
        "sglang serve --model-path a/b --tp-size 2",
        "python /opt/sglang/python/sglang/launch_server.py --model-path a/b --tp 2",
        "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path a/b --tp 2",
        "--model-path a/b --tp 2",
    ],
)
def test_every_way_to_start_sglang_is_found(command: str) -> None:
    config = EngineConfig.from_command(command)
    assert (config.engine, config.model, config.tp) == ("sglang", "a/b", 2)


def test_flags_of_sglang_fill_the_same_fields() -> None:
    assert read(
        "python -m sglang.launch_server --model-path a/b --dp 2 --mem-fraction-static 0.8 --context-length 4096 "
        "--cuda-graph-bs 1 2 4 --disable-radix-cache --disable-cuda-graph --enable-torch-compile --chunked-prefill-size -1"
    ) == {
        "model": "a/b",
        "dp": 2,
        "gpu_memory_utilization": 0.8,
        "max_model_len": 4096,
        "capture_sizes": (1, 2, 4),
        "prefix_caching": False,
        "enforce_eager": True,
        "torch_compile": True,
    }


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("docker run --gpus all -v ~/.cache:/root -p 8000:8000 --ipc=host vllm/vllm-openai:v0.10.1.1 --model a/b", "0.10.1.1"),
        ("docker run --rm vllm/vllm-openai:v0.8.5 a/b -tp 2", "0.8.5"),
        ("docker run --rm -it vllm/vllm-openai:v0.8.5.post1 a/b", "0.8.5.post1"),
        ("sudo docker run --entrypoint vllm vllm/vllm-openai:v0.9.0 serve a/b", "0.9.0"),
        ("docker run registry.corp:5000/mirror/vllm-openai:v0.9.0 --model a/b", "0.9.0"),
        ("podman run ghcr.io/x/vllm:0.9.1 vllm serve a/b", "0.9.1"),
        ("docker run rocm/vllm:rocm6.3.1_vllm_0.8.5_20250521 vllm serve a/b", "0.8.5"),
        ("docker run -d --name vllm vllm/vllm-openai:latest --model a/b", None),
        ("docker run vllm/vllm-openai:nightly-0123abc --model a/b", None),
        ("docker run nvcr.io/nvidia/vllm:25.09-py3 vllm serve a/b", None),
        ("docker run vllm/vllm-openai@sha256:0123abcd --model a/b", None),
        ("kubectl run x --image=vllm/vllm-openai:v0.9.0 -- --model a/b", "0.9.0"),
        ("uvx --from vllm==0.10.2 vllm serve a/b", "0.10.2"),
        ("uv run --with vllm==0.10.2 vllm serve a/b", "0.10.2"),
        ('image: vllm/vllm-openai:v0.9.0\nargs: ["--model", "a/b"]', "0.9.0"),
        ("- name: vllm\n  image: vllm/vllm-openai:v0.9.0  # pinned\n  command: [vllm, serve]\n  args: [a/b]", "0.9.0"),
        ("services:\n  llm:\n    image: vllm/vllm-openai:v0.9.1\n    command: --model a/b --dtype half", "0.9.1"),
    ],
)  # fmt: skip
def test_the_release_comes_from_the_image_tag_where_it_names_one(command: str, version: str | None) -> None:
    config = EngineConfig.from_command(command)
    assert (config.model, config.version) == ("a/b", version)


NO_STARTS = (
    *(
        "",
        "   ",
        "\n",
        "vllm",
        "vllm chat",
        "vllm bench serve a/b",
        "serve a/b",
        "a/b",
        "python -m vllm",
        "ls -l",
        '""',
    ),
    *("# vllm serve a/b", "echo done # vllm serve a/b", "docker run nginx", "args: []", "- ", "image:", "()[]{}"),
)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("image: vllm/vllm-openai:v0.9.0\n        args:\n        - --model=a/b", {"version": "0.9.0"}),  # without its first blanks
        ('"image": "vllm/vllm-openai:v0.9.0",\n"args": ["--model", "a/b"],', {"version": "0.9.0"}),
        ("containers:\n- name: side\n  image: nginx\n  args: [-g, daemon off]\n- args: [--model, a/b, -tp, 2]\n  image: x/vllm", {"tp": 2}),
        ("a: &x\n- image: busybox\nb: *x\nc:\n  image: x/vllm\n  args: &y [--model, a/b]\n  more: [*y, *y]", {}),
        ("kind: A\nargs: [x]\n---\nspec:\n\tcontainers: [{image: x/vllm, args: [--model, a/b]}]", {}),
        ("command: |\n  export VLLM_USE_V1=0\n  vllm serve a/b --block-size 8\nargs: []", {"generation": "v0", "block_size": 8}),
        ("image: x/vllm\nargs: [--model, a/b, --gpu-memory-utilization, 0.90, --swap-space, 0x8]", None),
        ("image: x/vllm\nenv: [{name: B, value: a/b}, {name: C, valueFrom: {}}]\nargs: [--model, $B]", {}),
    ],
)  # fmt: skip
def test_containers_are_read_as_their_manifest_says(command: str, fields: dict[str, Any] | None) -> None:
    if fields is None:
        with pytest.raises(ConfigError, match="--swap-space = '0x8': must be a number"):
            read(command)
        return
    found = read(command)
    found.pop("environment", None)
    assert found == {"model": "a/b", **fields}


def test_aliases_of_a_manifest_are_read_once() -> None:
    lists = "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(60))
    with pytest.raises(ConfigError, match="it starts no engine"):
        read(f"args: &a0 [x]\n{lists}")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("[", "neither YAML nor JSON .line 2.; paste the whole container"),
        ("args: [a\nimage: b", "neither YAML nor JSON"),
        ('args: ["--model", "{{ .Values.model }}"]', "a template, not a manifest; render it first"),
        ('image: vllm/vllm-openai\nargs: ["--api-key", "S3CRET", "--model", "{{ .Values.model }}"]', "a template"),
        ("image: nginx\nenv:\n- name: HF_TOKEN\n  value: S3CRET", "it starts no engine that is known here"),
        ("image: x/vllm\nenv: [{name: HF_TOKEN, value: S3CRET}", "neither YAML nor JSON"),
    ],
)
def test_what_is_no_manifest_is_refused(command: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"command: {message}") as refused:
        read(command)
    assert "S3CRET" not in str(refused.value)


def test_command_lines_need_no_yaml_and_manifests_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read("vllm serve a/b -tp 2") == {"model": "a/b", "tp": 2}
    with pytest.raises(ConfigError, match=r"PyYAML is needed to read a manifest; pip install 'startup-model.cli.'"):
        read('args: ["--model", "a/b"]')


@pytest.mark.parametrize("command", NO_STARTS)
def test_commands_that_start_no_engine_are_refused(command: str) -> None:
    with pytest.raises(ConfigError, match=r"command.*(starts no engine|empty).*vllm serve"):
        read(command)


@pytest.mark.parametrize("command", [None, 3, b"vllm serve a/b", ["vllm", "serve", "a/b"]])
def test_commands_that_are_no_text_are_refused(command: Any) -> None:
    with pytest.raises(ConfigError, match="command"):
        EngineConfig.from_command(command)


# --- environment and secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "VLLM_USE_V1=0 OMP_NUM_THREADS='4' vllm serve a/b",
        "env VLLM_USE_V1=0 OMP_NUM_THREADS=4 vllm serve a/b",
        "export VLLM_USE_V1=0 && export OMP_NUM_THREADS=4; vllm serve a/b",
        "#!/bin/bash\nset -e\nexport VLLM_USE_V1=0\nexport OMP_NUM_THREADS=4\nvllm serve a/b",
        "VLLM_USE_V1=0 OMP_NUM_THREADS=4 nohup vllm serve a/b",
        "docker run -e VLLM_USE_V1=0 --env=OMP_NUM_THREADS=4 vllm/vllm-openai:latest --model a/b",
        "command: [vllm, serve, a/b]\nenv:\n- name: VLLM_USE_V1\n  value: '0'\n- name: OMP_NUM_THREADS\n  value: \"4\"",
        "image: vllm/vllm-openai\nenvironment:\n  - VLLM_USE_V1=0\n  - OMP_NUM_THREADS=4\ncommand: --model a/b",
        "image: vllm/vllm-openai\nenvironment:\n  VLLM_USE_V1: '0'\n  OMP_NUM_THREADS: 4\ncommand: --model a/b",
    ],
)
def test_the_environment_is_read_wherever_it_stands(command: str) -> None:
    found = read(command)
    assert found["generation"] == "v0"
    assert found["environment"] == {"VLLM_USE_V1": "0", "OMP_NUM_THREADS": "4"}


def test_switches_in_the_environment_fill_fields() -> None:
    assert read("VLLM_DISABLE_COMPILE_CACHE=1 vllm serve a/b")["compile_cache"] == "cold"
    assert read("TORCHDYNAMO_DISABLE=1 vllm serve a/b")["torch_compile"] is False
    assert read("VLLM_CPU_KVCACHE_SPACE=40 vllm serve a/b")["kv_cache_memory_bytes"] == 40 * 2**30
    assert "kv_cache_memory_bytes" not in read("VLLM_CPU_KVCACHE_SPACE=0 vllm serve a/b")
    assert "generation" not in read("VLLM_USE_V1= vllm serve a/b")
    with pytest.raises(ConfigError, match="VLLM_USE_V1 = 'maybe': must be true or false"):
        read("VLLM_USE_V1=maybe vllm serve a/b")


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve a/b --api-key S3CRET",
        "vllm serve a/b --api-key=S3CRET --port 3",
        "vllm serve a/b --api-key S3CRET S3CRET2 --port 3",
        "vllm serve a/b --api-key -S3CRET",
        "vllm serve a/b --hf-token S3CRET",
        "vllm serve a/b --hf_token=S3CRET",
        "vllm serve a/b --ssl-keyfile-password S3CRET",
        "vllm serve a/b S3CRET",
        "vllm serve a/b -S3CRET",
        "vllm serve a/b --some-new-flag S3CRET --other=S3CRET",
        'vllm serve a/b --speculative-config \'{"token": "S3CRET"}\' --kv-transfer-config.token=S3CRET',
        "python -m sglang.launch_server --model-path a/b --admin-api-key S3CRET --api-key S3CRET",
        "HF_TOKEN=S3CRET VLLM_API_KEY=S3CRET AWS_SECRET_ACCESS_KEY=S3CRET OTHER=S3CRET vllm serve a/b",
        "export HF_TOKEN=S3CRET; vllm serve a/b",
        "env HUGGING_FACE_HUB_TOKEN=S3CRET vllm serve a/b --api-key $HUGGING_FACE_HUB_TOKEN",
        "VLLM_CACHE_URL=https://user:S3CRET@host/x vllm serve a/b",
        "VLLM_SOMETHING=hf_S3CRETS3CRETS3CRET vllm serve a/b",
        "docker run -e HF_TOKEN=S3CRET --env VLLM_API_KEY=S3CRET vllm/vllm-openai:v0.9.0 --model a/b",
        "image: vllm/vllm-openai\nenvironment:\n  - HF_TOKEN=S3CRET\ncommand: --model a/b",
        "vllm serve https://user:S3CRET@huggingface.co/a/b",
        "vllm serve 's3://S3CRET:S3CRET@bucket/a/b?X-Amz-Signature=S3CRET#S3CRET'",
    ],
)
def test_secrets_are_kept_nowhere(command: str) -> None:
    config = EngineConfig.from_command(command)
    assert config.model
    assert config.model.endswith("a/b")
    assert "S3CRET" not in repr(config)
    assert "S3CRET" not in config.model_dump_json()


@pytest.mark.parametrize(
    "command",
    [
        "HF_TOKEN=S3CRET python app.py",
        "curl -H 'Authorization: S3CRET'",
        "ls --api-key S3CRET",
        "ls --api-key=S3CRET",
        "git clone https://me:S3CRET@host/x",
        "echo hf_S3CRETS3CRET",
        "HF_TOKEN=S3CRET vllm serve a/b 'x",
        pytest.param("AWS_KEY=S3CRET " * 9_000, id="a long command"),
    ],
)
def test_secrets_are_not_repeated_in_messages(command: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EngineConfig.from_command(command)
    assert "S3CRET" not in str(refused.value)
    assert "S3CRET" not in str(refused.value.value)


# --- hostile text -------------------------------------------------------------------------------------------------------

HOSTILE = {
    "too long": "vllm serve a/b" + " " * 70_000,
    "one long name": "vllm serve " + "a" * 65_000,
    "many flags": "vllm serve a/b " + "--x " * 15_000,
    "many different flags": "vllm serve a/b " + " ".join(f"--x{i}" for i in range(8_000)),
    "many ambiguous flags": "vllm serve a/b " + "--m " * 15_000,
    "many dotted keys": "vllm serve a/b " + "-O.level=1 " * 5_000,
    "many assignments": "A=1 " * 15_000 + "vllm serve a/b",
    "many different assignments": " ".join(f"VLLM_{i}={i}" for i in range(4_000)) + " vllm serve a/b",
    "one quote": '"' + "a" * 65_000,
    "many quotes": "'" * 65_000,
    "many slashes": "vllm/" * 13_000,
    "many backslashes": "vllm serve a/b " + "\\" * 50_000,
    "many backslashes with blanks": ("\\" + " " * 100 + "x") * 600,
    "many carets": "^ " * 32_000,
    "many line breaks": "x" + "\n" * 60_000 + "y",
    "many line breaks and blanks": "x" + "\n " * 30_000 + "y",
    "many images": "docker run " + "a/vllm " * 9_000 + "--model x",
    "many scripts": "bash -c " * 8_000,
    "scripts in scripts": "bash -c 'bash -c \"bash -c vllm\"'",
    "many variables": "A=" + "x" * 300 + " vllm serve " + "$A" * 30_000,
    "variables of themselves": "A='$A$A' B='$A$A' vllm serve $A$B",
    "many braces": "vllm serve " + "${" * 30_000,
    "many brackets": "[" * 65_000,
    "a deep list": "args: " + "[" * 30_000 + "]" * 30_000,
    "many dashes": "-" * 65_000,
    "many long dashes": "vllm serve a/b " + "—" * 60_000,
    "many hashes": "# " * 32_000,
    "many pipes": "|" * 65_000,
    "many redirections": "vllm serve a/b " + "> " * 30_000,
    "many entries": "args:\n" + "- x\n" * 15_000,
    "a long key": "image: " + "a" * 60_000,
    "null bytes": "vllm\0serve\0a/b\0" * 4_000,
    "half a character": "vllm serve \ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_or_refused_in_no_time(name: str) -> None:
    begin = time.perf_counter()
    try:
        config, message = EngineConfig.from_command(HOSTILE[name]), ""
    except StartupModelError as refused:
        config, message = EngineConfig(), str(refused)
    assert time.perf_counter() - begin < 3.0
    assert len(message) <= 600
    assert message.isprintable()
    assert len(config.unused_flags) <= 300
    assert len(config.environment) <= 100


WORDS = st.sampled_from(
    [
        *("vllm", "serve", "sglang", "python -m", "vllm.entrypoints.openai.api_server", "sglang.launch_server", "docker run"),
        *("a/b", "-tp", "2", "--tp", "-O", "3", "--dtype=half", "--enforce-eager", "--no-", "--compilation-config", "--"),
        *("'", '"', "\\", "\n", "\r\n", " ", "=", "|", ">", "2>&1", ";", "&&", "#", "$A", "${A:-b}", "`", "[", "]", "{", "}"),
        *("args:", "image:", "- ", "command: |", "A=1", "VLLM_USE_V1=1", "export", "vllm/vllm-openai:v0.9.0", "—", "“", "\u00a0"),
    ]
)  # fmt: skip


@settings(max_examples=200, deadline=2000)
@given(
    st.one_of(
        st.text(max_size=300), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=25).map("".join)
    )
)
@example("vllm serve a/b --api-key")
def test_any_text_gives_a_configuration_or_the_librarys_own_error(text: str) -> None:
    try:
        config, message = EngineConfig.from_command(text), ""
    except StartupModelError as refused:
        config, message = EngineConfig(), str(refused)
    assert message.isprintable()
    assert len(message) <= 600
    assert EngineConfig.model_validate(config.model_dump()) == config


@settings(max_examples=100, deadline=2000)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40))
def test_a_quoted_model_name_comes_back_letter_by_letter(name: str) -> None:
    plain = "".join(c for c in name if c.isascii() and c.isprintable()).strip() or "m"
    quoted = plain.replace("'", "'\\''")
    if plain.startswith("-") or "$" in plain or "`" in plain or "://" in plain:
        return
    assert read(f"vllm serve '{quoted}'")["model"] == plain


# --- the way back -------------------------------------------------------------------------------------------------------

NAMES = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789/._- :'\"\\\\(){}", min_size=1, max_size=30)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "model": NAMES.map(lambda name: f"m{name}").filter(lambda name: "://" not in name and ": " not in name),
    "tp": st.integers(1, 64),
    "pp": st.integers(1, 8),
    "dp": st.integers(1, 8),
    "dtype": st.sampled_from(["auto", "bfloat16", "half", "float32"]),
    "quantization": st.sampled_from([None, "awq", "fp8", "gptq_marlin", "compressed-tensors"]),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2"]),
    "load_format": st.sampled_from(["auto", "dummy", "runai_streamer"]),
    "gpu_memory_utilization": st.none() | st.floats(1e-6, 1.0),
    "max_model_len": st.none() | st.integers(1, 10**9),
    "max_num_batched_tokens": st.none() | st.integers(1, 10**9),
    "max_num_seqs": st.none() | st.integers(1, 10**7),
    "block_size": st.none() | st.integers(1, 65536),
    "enforce_eager": st.booleans(),
    "max_capture_size": st.none() | st.integers(1, 10**6),
    "capture_sizes": st.none() | st.lists(st.integers(1, 10**6), min_size=1, max_size=6).map(tuple),
}
VLLM: dict[str, st.SearchStrategy[Any]] = COMMON | {
    "expert_parallel": st.booleans(),
    "swap_space": st.none() | st.floats(0, 1e6).map(lambda size: size * 2**30),
    "num_gpu_blocks_override": st.none() | st.integers(1, 10**10),
    "kv_cache_memory_bytes": st.none() | st.integers(1, 10**15 - 1).map(float),
    "max_seq_len_to_capture": st.integers(1, 10**9),
    "cudagraph_mode": st.sampled_from([None, "none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]),
    "optimization_level": st.none() | st.integers(0, 3),
    "chunked_prefill": st.sampled_from([None, True, False]),
    "prefix_caching": st.sampled_from([None, True, False]),
    "torch_compile": st.sampled_from([None, False]),
    "generation": st.sampled_from([None, "v0", "v1"]),
    "compile_cache": st.sampled_from(["unknown", "cold"]),
    "unused_flags": st.sampled_from([(), ("--trust-remote-code",), ("--no-async-scheduling", "--enable-lora")]),
}
SGLANG: dict[str, st.SearchStrategy[Any]] = COMMON | {
    "torch_compile": st.sampled_from([None, True]),
    "prefix_caching": st.sampled_from([None, False]),
    "unused_flags": st.sampled_from([(), ("--trust-remote-code",)]),
}
SET_BY = {
    "generation": "VLLM_USE_V1",
    "torch_compile": "TORCH_COMPILE_DISABLE",
    "compile_cache": "VLLM_DISABLE_COMPILE_CACHE",
}
VARIABLES = st.dictionaries(
    st.sampled_from(["VLLM_LOGGING_LEVEL", "OMP_NUM_THREADS", "NCCL_P2P_DISABLE", "HF_HOME"]),
    st.text("abcXYZ0189/._-,' \"\\\\:=&;|", max_size=20),
    max_size=3,
)


def configurations(engine: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[EngineConfig]:
    """Configurations with some fields set."""
    given = st.fixed_dictionaries({}, optional=fields)
    return st.builds(
        lambda fields, environment: EngineConfig(engine=engine, environment=environment, **fields), given, VARIABLES
    )  # type: ignore[arg-type]


def with_its_variables(config: EngineConfig) -> EngineConfig:
    """With the variables that set its fields, which are listed beside them when a command is read."""
    values = {
        "VLLM_USE_V1": "0" if config.generation == "v0" else "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_DISABLE_COMPILE_CACHE": "1",
    }
    default = EngineConfig(engine=config.engine)
    if config.engine == "sglang":
        return config
    added = {name: values[name] for field, name in SET_BY.items() if getattr(config, field) != getattr(default, field)}
    return config.replace(environment=dict(config.environment) | added)


@settings(max_examples=150, deadline=2000)
@given(st.one_of(configurations("vllm", VLLM), configurations("sglang", SGLANG)))
def test_a_written_command_is_read_as_the_same_configuration(config: EngineConfig) -> None:
    settings_too = config.capture_sizes is not None or config.cudagraph_mode is not None
    if config.engine == "vllm" and config.optimization_level is not None and settings_too:
        with pytest.raises(ConfigError, match=r"optimization_level = [0-3]: its flag depends on the version"):
            config.to_command()
        config = config.replace(optimization_level=None)
    found = EngineConfig.from_command(config.to_command())
    assert found == with_its_variables(config)
    assert EngineConfig.from_command(found.to_command()) == found


@settings(max_examples=100, deadline=2000)
@given(
    configurations("vllm", {name: values for name, values in VLLM.items() if name != "generation"}),
    st.sampled_from(["0.3.1", "0.6.4", "0.8.4", "0.10.1.1", "0.10.2", "0.11.0", "0.11.1", "0.12.0", "0.33.0"]),
)
def test_a_version_spells_flags_its_own_way_or_says_that_it_has_none(config: EngineConfig, version: str) -> None:
    try:
        command, message = config.replace(version=version).to_command(), ""
    except ConfigError as refused:
        command, message = "vllm serve", refused.problem
    assert message == "" or f"vllm {version} has no --" in message
    if not message:
        found = EngineConfig.from_command(command)
        # What an early version does by itself without a flag is read as None.
        quiet = {name: None for name in ("chunked_prefill", "prefix_caching") if getattr(found, name) is None}
        assert found == with_its_variables(config).replace(**quiet)
        assert all(getattr(config, name) in (None, False) for name in quiet)


@settings(max_examples=100, deadline=2000)
@given(st.lists(WORDS, max_size=25).map(" ".join))
def test_what_is_read_can_be_written_or_the_reason_is_told(text: str) -> None:
    try:
        config = EngineConfig.from_command(text)
    except StartupModelError:
        return
    try:
        again, message = EngineConfig.from_command(config.to_command()), ""
    except ConfigError as refused:
        again, message = config, str(refused)
    assert again == config.replace(version=None) or message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, "vllm serve m"),
        ({"version": "0.10.1.1", "max_capture_size": 8}, "vllm serve m --cuda-graph-sizes 8"),
        ({"version": "0.11.1", "max_capture_size": 8}, "vllm serve m --max-cudagraph-capture-size 8"),
        ({"max_capture_size": 8}, "vllm serve m --max-cudagraph-capture-size 8"),
        ({"capture_sizes": (1, 2)}, """vllm serve m --compilation-config '{"cudagraph_capture_sizes": [1, 2]}'"""),
        ({"optimization_level": 3}, "vllm serve m -O3"),
        (
            {"version": "0.11.0", "optimization_level": 3, "cudagraph_mode": "full"},
            """vllm serve m --compilation-config '{"cudagraph_mode": "FULL", "level": 3}'""",
        ),
        (
            {"version": "0.12.0", "optimization_level": 3, "cudagraph_mode": "full"},
            """vllm serve m --compilation-config '{"cudagraph_mode": "FULL"}' -O3""",
        ),
        ({"version": "0.4.2", "max_seq_len_to_capture": 9}, "vllm serve m --max-context-len-to-capture 9"),
        ({"version": "0.6.4", "prefix_caching": False}, "vllm serve m"),
        ({"version": "0.6.5", "prefix_caching": False}, "vllm serve m --no-enable-prefix-caching"),
        ({"version": "0.5.2", "chunked_prefill": False}, "vllm serve m"),
        ({"version": "0.8.4", "chunked_prefill": False}, "vllm serve m --enable-chunked-prefill=false"),
        ({"chunked_prefill": False}, "vllm serve m --no-enable-chunked-prefill"),
        ({"generation": "v0", "version": "0.10.0"}, "VLLM_USE_V1=0 vllm serve m"),
        ({"generation": "v1", "version": "0.11.0"}, "vllm serve m"),
        ({"torch_compile": False}, "TORCH_COMPILE_DISABLE=1 vllm serve m"),
        ({"compile_cache": "cold"}, "VLLM_DISABLE_COMPILE_CACHE=1 vllm serve m"),
        (
            {"environment": {"VLLM_CPU_KVCACHE_SPACE": "1"}, "kv_cache_memory_bytes": 2.0**30},
            "VLLM_CPU_KVCACHE_SPACE=1 vllm serve m",
        ),
        (
            {"environment": {"VLLM_CPU_KVCACHE_SPACE": "1"}, "kv_cache_memory_bytes": 2.0**31},
            "VLLM_CPU_KVCACHE_SPACE=1 vllm serve m --kv-cache-memory-bytes 2147483648",
        ),
        ({"engine": "sglang"}, "python -m sglang.launch_server --model-path m"),
        (
            {"engine": "sglang", "torch_compile": False, "prefix_caching": True},
            "python -m sglang.launch_server --model-path m",
        ),
        (
            {"engine": "sglang", "expert_parallel": True, "tp": 8},
            "python -m sglang.launch_server --model-path m --ep-size 8 --tp-size 8",
        ),
    ],
)
def test_how_fields_are_spelled(fields: dict[str, Any], command: str) -> None:
    assert EngineConfig(model="m", **fields).to_command() == command


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"page_cache": "cold"}, "engine.page_cache = 'cold': no flag of vllm sets it; a state that a start finds, not a flag"),
        ({"compile_cache": "warm"}, "engine.compile_cache = 'warm': no flag of vllm sets it"),
        ({"offline": True}, "engine.offline = True: no flag of vllm sets it; omit it: a command line starts a server"),
        ({"lazy_experts": True}, "engine.lazy_experts = True"),
        ({"torch_compile": True}, "engine.torch_compile = True: no flag of vllm sets it; omit it, or give"),
        ({"unused_flags": ("--port",)}, "engine.unused_flags = '--port': its value was not kept; give the command line"),
        ({"unused_flags": ("(an unknown flag)",)}, "its value was not kept"),
        ({"version": "0.8.0", "max_capture_size": 8}, "vllm 0.8.0 has no --max-cudagraph-capture-size or --cuda-graph-sizes"),
        ({"version": "0.10.1", "kv_cache_memory_bytes": 1e9}, "vllm 0.10.1 has no --kv-cache-memory-bytes"),
        ({"version": "0.18.0", "swap_space": 1e9}, "vllm 0.18.0 has no --swap-space"),
        ({"version": "0.10.0", "cudagraph_mode": "full"}, "vllm 0.10.0 has no --compilation-config with cudagraph_mode"),
        ({"environment": {"VLLM_USE_V1": "1"}, "generation": "v0"}, "environment.VLLM_USE_V1 = '1': contradicts the configuration; write '0'"),
        ({"environment": {"VLLM_USE_V1": "maybe"}}, "environment.VLLM_USE_V1 = 'maybe': must be true or false"),
        ({"environment": {"A B": "1"}}, "engine.environment = 'A B': not the name of a variable"),
        ({"kv_cache_memory_bytes": 1.5}, r"--kv-cache-memory-bytes = '1.5': no command line says it \(must be a whole number"),
        ({"kv_cache_memory_bytes": 1e17}, "no command line says it"),
        ({"model": "-m"}, "engine.model = '-m': no command line says it"),
        ({"model": "$M"}, r"engine.model = '\$M': no command line says it .a shell variable"),
        ({"model": "a\u200bb"}, "no command line says it"),
        ({"model": "http://user:pw@h/m"}, "no command line says it"),
        ({"engine": "sglang", "capture_sizes": ()}, "no command line says it"),
        ({"engine": "sglang", "swap_space": 1e9}, "engine.swap_space = 1000000000.0: no flag of sglang sets it"),
        ({"engine": "sglang", "expert_parallel": True}, "engine.expert_parallel = True: no flag of sglang sets it"),
        ({"engine": "sglang", "generation": "v1"}, "engine.generation = 'v1': no flag of sglang sets it"),
    ],
)  # fmt: skip
def test_what_no_command_line_says_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        EngineConfig(**({"model": "m"} | fields)).to_command()
    assert len(str(refused.value)) <= 600
    assert str(refused.value).isprintable()
