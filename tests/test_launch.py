"""From what a user would type to what is started: words, variables, flags of variants, the checkpoint, the key; and what of it may be recorded or shown."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.host import Gpu, HostFacts, facts_in_words, file_system_of, host_facts
from calibration.measure.launch import (
    Launch,
    api_key,
    environment_that_matters,
    launch_of,
    program_of,
    server_versions,
    shown_words,
)
from calibration.measure.states import checkpoint_folder
from startup_model import EngineConfig
from startup_model.errors import ConfigError, StartupModelError
from startup_model.secrets import redact_text

# --- commands -----------------------------------------------------------------------------------------------------------


def test_a_command_gets_our_address_and_no_shell() -> None:
    launch = launch_of("A=1 vllm serve m --host 0.0.0.0 --port=80 --load-format safetensors ; rm -rf x")
    assert launch.environment == {"A": "1"}
    assert launch.port == 80
    words = launch.changed(enforce_eager=True, load_format="dummy").command(1234, model="n")
    assert words[:3] == ["vllm", "serve", "n"]
    assert words[-6:] == ["--load-format", "dummy", "--host", "127.0.0.1", "--port", "1234"]
    assert ";" in words  # a word like any other
    assert words.count("--host") == 1
    assert not {"--port=80", "0.0.0.0"} & set(words)  # noqa: S104  it is looked for
    encrypted = launch_of("vllm serve m --uds /s --ssl-keyfile k --ssl-certfile=c --enable-ssl-refresh --seed 1")
    assert encrypted.command(80) == ["vllm", "serve", "m", "--seed", "1", "--host", "127.0.0.1", "--port", "80"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m -tp 2", "vllm serve n -tp 2"),
        ("vllm serve -tp 2 m", "vllm serve -tp 2 n"),
        ("vllm serve --enforce-eager m", "vllm serve --enforce-eager n"),
        ("vllm serve --cuda-graph-sizes 1 2 --dtype half m", "vllm serve --cuda-graph-sizes 1 2 --dtype half n"),
        ("vllm serve --model=m -tp 2", "vllm serve --model=n -tp 2"),
        ("vllm serve --model m", "vllm serve --model n"),
        ("vllm serve m --model o", "vllm serve n"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "python -m vllm.entrypoints.openai.api_server --model n"),
        ("python -m sglang.launch_server --model m --tp 2", "python -m sglang.launch_server --model n --tp 2"),
        ("python -m sglang.launch_server --tp 2 --model-path=m", "python -m sglang.launch_server --tp 2 --model-path=n"),
        ("/opt/my serve/vllm serve m", "/opt/my serve/vllm serve n"),
    ],
)  # fmt: skip
def test_another_model_takes_the_place_of_the_commands(command: str, expected: str) -> None:
    words = command.split(" ") if "my serve" not in command else ["/opt/my serve/vllm", "serve", "m"]
    wanted = expected.split(" ") if "my serve" not in command else ["/opt/my serve/vllm", "serve", "n"]
    launch = launch_of(words)
    assert launch.command(1, model="n") == [*wanted, "--host", "127.0.0.1", "--port", "1"]
    assert launch.engine is not None


def test_a_command_without_a_model_takes_none() -> None:
    with pytest.raises(ConfigError, match="--model = 'n': the command has no model to put it in the place of"):
        launch_of("vllm serve -tp 2").command(1, model="n")


@pytest.mark.parametrize("flags", ["--port 80", "--port=80", "--por 80", "--port 7 --host 0 --port 80", "--host h --port 80 --uds /x"])  # fmt: skip
def test_an_address_goes_in_every_spelling(flags: str) -> None:
    launch = launch_of(f"vllm serve m {flags} --dtype half")
    assert launch.port == 80
    assert launch.command(1) == ["vllm", "serve", "m", "--dtype", "half", "--host", "127.0.0.1", "--port", "1"]


def test_nothing_is_put_behind_the_end_of_the_flags() -> None:
    assert launch_of("vllm serve --dtype half -- m").changed(enforce_eager=True).command(1) == [
        *("vllm", "serve", "--dtype", "half", "--enforce-eager", "--host", "127.0.0.1", "--port", "1", "--", "m")
    ]


def test_variants_are_flags_of_the_engine_and_said_once() -> None:
    launch = launch_of("vllm serve m --enforce-eager --load-format=dummy")
    assert launch.changed(enforce_eager=True, load_format="dummy").command(1)[:-4] == list(launch.words)
    sglang = launch_of("python -m sglang.launch_server --model m --load-format auto --enable-torch-compile")
    assert sglang.changed(enforce_eager=True, load_format="dummy").command(1)[3:-4] == [
        *("--model", "m", "--enable-torch-compile", "--disable-cuda-graph", "--load-format", "dummy")
    ]


def test_fields_of_the_configuration_can_be_changed() -> None:
    launch = launch_of("vllm serve m -tp 2 -O3 --no-enable-prefix-caching")
    off = launch.changed(optimization_level=0, torch_compile=False, tp=1, prefix_caching=True)
    assert off.words == ("vllm", "serve", "m", "-O0", "--enable-prefix-caching")
    assert off.environment == {"TORCH_COMPILE_DISABLE": "1"}
    assert off.engine is not None
    assert (off.engine.optimization_level, off.engine.torch_compile, off.engine.tp) == (0, False, 1)
    assert launch.changed() is launch
    sglang = launch_of("python -m sglang.launch_server --model m --enable-torch-compile")
    assert sglang.changed(torch_compile=False).words == sglang.words[:-1]
    with pytest.raises(ConfigError, match="optimization_level = 0: --compilation-config holds more"):
        launch_of(
            ["vllm", "serve", "m", "--compilation-config", '{"level": 3, "cudagraph_mode": "FULL"}']
        ).changed(optimization_level=0)  # fmt: skip
    with pytest.raises(ConfigError, match="torch_compile = None: it cannot be set in this command"):
        launch_of("TORCH_COMPILE_DISABLE=1 vllm serve m").changed(torch_compile=None)
    with pytest.raises(ConfigError, match="torch_compile = True: no flag of vllm sets it"):
        launch.changed(torch_compile=True)


def test_programs_of_ones_own_get_the_port_where_they_want_it() -> None:
    for command in ("./serve.sh {port} --api-key k", "bash -c 'vllm serve $MODEL --port {port}'"):
        launch = launch_of(command)
        assert (launch.engine, launch.port) == (None, None)
        assert launch.command(7) == [word.replace("{port}", "7") for word in shlex.split(command)]
        with pytest.raises(ConfigError, match="no flags can be added to it"):
            launch.changed(enforce_eager=True).command(7)
    container = launch_of("docker run --rm -p 127.0.0.1:{port}:8000 vllm/vllm-openai:v0.9.0 --model m")
    assert container.engine is not None
    assert container.engine.version == "0.9.0"
    assert container.changed(enforce_eager=True).command(7, model="n") == [
        *("docker", "run", "--rm", "-p", "127.0.0.1:7:8000", "vllm/vllm-openai:v0.9.0", "--model", "n", "--enforce-eager")
    ]  # fmt: skip


def test_variables_may_stand_in_front() -> None:
    for command in ("A=1 B='x y' vllm serve m", "env A=1 B='x y' vllm serve m", "A=1 env B='x y' vllm serve \\\n m"):
        launch = launch_of(command)
        assert launch.environment == {"A": "1", "B": "x y"}
        assert launch.words == ("vllm", "serve", "m")
        assert {"A": "1", "PATH": os.environ["PATH"]}.items() <= launch.variables.items()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (42, "command = 42: must be a command; give a text such as 'vllm serve MODEL', its words, or an EngineConfig"),
        (None, "command = None: must be a command"),
        (b"vllm serve m", "must be a command"),
        ({"vllm": 1}, "must be a command"),
        (["vllm", 42], "command = 42: must be made of words"),
        (range(10**12), "command = 0: must be made of words"),
        ([], "there is no program in it"),
        ("", "there is no program in it"),
        ("A=1", "there is no program in it"),
        ("--model m", "there is no program in it"),
        ("vllm serve m\0", "it holds a null byte"),
        (["vllm", "serve", "m\0"], "it holds a null byte"),
        ("vllm serve 'm", r"cannot be split into words \(No closing quotation\); check its quotes"),
        ("x" * 200_000, "must be at most 131072 characters"),
        (["x"] * 200_000, "must be at most 131072 characters"),
        ("bash -c 'vllm serve m'", r"bash starts the server: flags cannot be added and the server cannot be stopped; .*write \{port\} where its port belongs"),
        ("python -c 'vllm serve m'", r"it starts no engine that is known here; write \{port\}"),
        ("ls -l", r"it starts no engine that is known here; write \{port\}"),
        ("vllm serve m --port 0", "--port = '0': must be a number from 1 to 65535; leave it out"),
        ("vllm serve m --port ٣", "must be a number from 1 to 65535"),
        ("vllm serve m -tp", "--tensor-parallel-size: missing, the flag needs a value"),
        ("vllm serve m -tp two", "-tp = 'two': must be a whole number"),
        ("vllm serve $MODEL", r"'\$MODEL': a shell variable"),
        ("MODEL=m vllm serve $MODEL", r"'\$MODEL': a shell variable"),  # no shell would put it there
        (["vllm", "serve", "\udcff"], "not UTF-8 text"),
        (EngineConfig(), "engine.model: missing, a server serves a model"),
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(command: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        launch_of(command)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= 600


@settings(max_examples=100, deadline=2000)
@given(
    st.lists(
        st.sampled_from(
            ["vllm", "serve", "m", "-tp", "2", "--model", "--port", "{port}", "--", "--api-key", "A=1", "env", "-O3", "''", "\0", "bash", "-c", "--no-x", "é"]
        ),
        max_size=8,
    )
)  # fmt: skip
def test_any_words_give_a_launch_or_the_librarys_own_error(words: list[str]) -> None:
    try:
        launch, message = launch_of(words), ""
    except StartupModelError as refused:
        launch, message = Launch(("x", "{port}"), {}, None, None), str(refused)
    assert all("{port}" not in word for word in launch.command(5))
    assert (launch.redacted() + message).isprintable()
    launch.checkpoint()


# --- configurations -----------------------------------------------------------------------------------------------------


def test_a_configuration_is_started_as_it_says() -> None:
    config = EngineConfig(
        model="m", version="0.9.0", generation="v0", kv_cache_memory_bytes=2.0**30, swap_space=2.0**31, prefix_caching=False,
        environment={"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "4"}, unused_flags=("--trust-remote-code",), max_capture_size=64,
    )  # fmt: skip
    launch = launch_of(config)
    assert launch.environment == {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "4", "VLLM_USE_V1": "0"}
    assert shlex.join(launch.words) == (
        "vllm serve m --swap-space 2 --cuda-graph-sizes 64 --no-enable-prefix-caching --trust-remote-code"
    )
    assert launch.engine == config.replace(environment=dict(launch.environment))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offline": True}, "engine.offline = True: no flag of vllm sets it; omit it: a command line starts a server"),
        ({"page_cache": "hot"}, "engine.page_cache = 'hot': no flag of vllm sets it; a state that a start finds, not a flag"),
        ({"compile_cache": "warm"}, "engine.compile_cache = 'warm': no flag"),
        ({"lazy_experts": True}, "engine.lazy_experts"),
        ({"unused_flags": ("--port",)}, "engine.unused_flags = '--port': its value was not kept"),
        ({"environment": {"VLLM_CACHE_ROOT": "(a path)"}}, r"environment.VLLM_CACHE_ROOT = '\(a path\)': a record does not keep it; give its value"),
        ({"environment": {"NCCL_X": "***"}}, "a record does not keep it"),
    ],
)  # fmt: skip
def test_what_no_server_can_be_told_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        launch_of(EngineConfig(model="m", **fields))


# --- the checkpoint -----------------------------------------------------------------------------------------------------


def hub(cache: Path, name: str, commits: dict[str, float], **references: str) -> Path:
    """A model in a hub's cache: commit -> when its snapshot was made; branch -> commit."""
    repository = cache / f"models--{name.replace('/', '--')}"
    for commit, made in commits.items():
        folder = repository / "snapshots" / commit
        folder.mkdir(parents=True)
        os.utime(folder, (made, made))
    for branch, commit in references.items():
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / branch).write_text(commit)
    return repository / "snapshots"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without any model."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "cache"),
    [
        ("HF_HOME={}/h", "h/hub"),
        ("HF_HUB_CACHE={}/c HF_HOME={}/h", "c"),
        ("HUGGINGFACE_HUB_CACHE={}/c", "c"),
        ("XDG_CACHE_HOME={}/x", "x/huggingface/hub"),
        ("HOME={}/u", "u/.cache/huggingface/hub"),
        ("HOME={}/u HF_HOME=~/mine", "u/mine/hub"),
        ("HF_HOME=", ""),
    ],
)
def test_the_servers_own_variables_say_where_its_weights_are(quiet: Path, variables: str, cache: str) -> None:
    launch = launch_of(f"{variables.replace('{}', str(quiet))} vllm serve o/m")
    assert launch.checkpoint() is None
    if cache:
        snapshots = hub(quiet / cache, "o/m", {"abc": 1.0})
        assert launch.checkpoint() == snapshots / "abc"
        assert launch_of("vllm serve o/m").checkpoint() is None


def test_the_revision_and_the_folder_of_downloads_count(quiet: Path) -> None:
    snapshots = hub(quiet / "d", "o/m", {"aaa": 3.0, "bbb": 2.0, "ccc": 1.0}, main="bbb", old="ccc")
    command = f"vllm serve o/m --download-dir {quiet}/d"
    assert launch_of(command).checkpoint() == snapshots / "bbb"
    assert launch_of(f"{command} --revision old").checkpoint() == snapshots / "ccc"
    assert launch_of(f"{command} --revision=aaa").checkpoint() == snapshots / "aaa"
    for unknown in ("zzz", "../../x", "/etc/passwd", "a/b", ".."):
        assert launch_of(f"{command} --revision {unknown}").checkpoint() is None
    (snapshots.parent / "refs" / "main").write_text("../..")
    assert launch_of(command).checkpoint() == snapshots / "aaa"  # the newest, where main says nothing
    assert launch_of(f"{command} --revision old").checkpoint("p/q") is None
    others = hub(quiet / "d", "p/q", {"ddd": 1.0})
    assert launch_of(f"{command} --revision old").checkpoint("p/q") == others / "ddd"


def test_a_folder_is_its_own_checkpoint_and_nothing_is_none(quiet: Path) -> None:
    assert launch_of(["vllm", "serve", str(quiet)]).checkpoint() == quiet
    assert launch_of("./x {port}").checkpoint(str(quiet)) == quiet
    assert launch_of("./x {port}").checkpoint() is None
    for name in (None, "", "a\0b", "x" * 5000, "o/m"):
        assert checkpoint_folder(name, {}) is None


# --- keys and secrets ---------------------------------------------------------------------------------------------------

SECRET = "S3CR3T99"  # noqa: S105  it is looked for


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --api-key S3CR3T99",
        "vllm serve m --api_key=S3CR3T99",
        "vllm serve m --api-key S3CR3T99 other --dtype half",
        "vllm serve m --api-key first --api-key S3CR3T99",
        "VLLM_API_KEY=other vllm serve m --api-key S3CR3T99",
        "VLLM_API_KEY=S3CR3T99 vllm serve m",
        "python -m sglang.launch_server --model m --api-key S3CR3T99",
        "./serve.sh {port} --api-key S3CR3T99",
        "./serve.sh {port} --api-key=S3CR3T99",
        "docker run -e VLLM_API_KEY=S3CR3T99 -p {port}:8000 vllm/vllm-openai --model m",
        "docker run --env=VLLM_API_KEY=S3CR3T99 -p {port}:8000 vllm/vllm-openai --model m",
    ],
)
def test_the_key_of_a_server_is_known_and_never_shown(command: str) -> None:
    launch = launch_of(command)
    assert api_key(launch.words, launch.variables) == SECRET
    assert SECRET not in launch.redacted()


def test_no_key_where_none_is_asked_for() -> None:
    assert api_key(["vllm", "serve", "m"], {}) is None
    assert api_key(["python", "-m", "sglang.launch_server", "--model", "m"], {"VLLM_API_KEY": "x"}) is None
    assert api_key(["./x", "{port}", "--api-key"], {}) is None


SECRET_WORDS = [
    *("--api-key S3CR3T99", "--api-key=S3CR3T99", "--api_key S3CR3T99 S3CR3T99", "--api-key -S3CR3T99 S3CR3T99"),
    *("--hf-token S3CR3T99", "-e HF_TOKEN=S3CR3T99", "--env=HF_TOKEN=S3CR3T99", "'--env=HF_TOKEN=a S3CR3T99'"),
    *(
        "-e 'AWS_SECRET_ACCESS_KEY=S3CR3T99 S3CR3T99'",
        "sk-S3CR3T99abcdef",
        "me:S3CR3T99@host",
        "http://me:S3CR3T99@h/x",
    ),
]


@pytest.mark.parametrize("secret", SECRET_WORDS)
@pytest.mark.parametrize("command", ["docker run {} vllm/vllm-openai --model m", "nosuch {} x", "vllm serve 'm {}", "bash {}\0", "A=b {}"])  # fmt: skip
def test_messages_show_no_secret(command: str, secret: str) -> None:
    with pytest.raises(ConfigError) as refused:
        launch_of(command.replace("{}", secret))
    assert SECRET not in str(refused.value)
    assert SECRET not in str(refused.value.value)


def test_what_is_no_secret_is_shown() -> None:
    words = [
        "vllm",
        "serve",
        "m",
        "--max-num-batched-tokens",
        "512",
        "--trust-remote-code",
        "--api-key",
        "k",
        "--dtype",
        "half",
    ]
    assert (
        shown_words(words) == "vllm serve m --max-num-batched-tokens 512 --trust-remote-code --api-key *** --dtype half"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "abc"),
        ("HF_HUB_TOKEN", "hf_x"),
        ("VLLM_X", "hf_abcdefgh12345678"),
        ("NCCL_A", "sk-abcdefgh12345678"),
        ("VLLM_HTTP", "user:pass@h"),
        ("VLLM_HTTP", "user:p:q@h:80"),
        ("VLLM_Y", "password=abc"),
        ("VLLM_Z", '{"token": "abc"}'),
        ("CUDA_X", "github_pat_abcdefgh1234"),
        ("VLLM_LONG", "x" * 201),
        ("VLLM_BELL", "\a"),
        ("PATH", "x"),
    ],
)
def test_variables_that_are_not_recorded(name: str, value: str) -> None:
    assert environment_that_matters({name: value}) == {}


def test_variables_that_are_recorded() -> None:
    variables = {
        "VLLM_CACHE_ROOT": "/somewhere", "HF_HOME": "/models", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4", "TRITON_CACHE_DIR": "/t",
        "FLASHINFER_WORKSPACE": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    }  # fmt: skip
    paths = {"VLLM_CACHE_ROOT", "HF_HOME", "TRITON_CACHE_DIR"}
    expected = {name: "(a path)" if name in paths else value for name, value in variables.items()}
    assert environment_that_matters(variables) == expected
    assert EngineConfig.from_command("TRITON_X=1 HF_HOME=/h VLLM_HTTP=u:p@h vllm serve m").environment == {
        "TRITON_X": "1",
        "HF_HOME": "/h",
    }


@pytest.mark.parametrize(
    "text", ["python:3.11@sha256:0123", "10:00:00@x", "git@github.com:o/r", "vllm/vllm-openai:v0.9.0@sha256:ab", "a: b@c"]
)  # fmt: skip
def test_what_only_looks_like_an_account_stays(text: str) -> None:
    assert redact_text(text) == text


# --- programs and versions ----------------------------------------------------------------------------------------------


def script(path: Path, head: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_program_is_found_on_the_servers_path(tmp_path: Path) -> None:
    program = script(tmp_path / "bin" / "vllm", "#!/bin/sh")
    assert program_of(["vllm"], {"PATH": str(program.parent)}) == str(program)
    assert program_of([sys.executable]) == sys.executable
    with pytest.raises(ConfigError, match="command = 'nosuchprogram': no such program; give its path"):
        program_of(["nosuchprogram", "serve"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="scripts begin with the path of their interpreter")
def test_the_servers_python_is_asked_for_versions(tmp_path: Path) -> None:
    expected = ".".join(map(str, sys.version_info[:3]))
    folder = Path(sys.executable).parent
    # An alias whose name is a Python's, whatever this one is called.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    variables = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{folder}{os.pathsep}{os.environ['PATH']}"}
    heads = {
        "plain": f"#!{python}",
        "env": "#!/usr/bin/env python3",
        "long": f'#!/bin/sh\n\'\'\'exec\' "{python}" "$0" "$@"',
    }
    for name, head in heads.items():
        program = script(tmp_path / name / "vllm", head)
        assert server_versions([str(program), "serve", "m"], variables)["python"] == expected
    assert server_versions(["numactl", "-N0", "python3", "-m", "vllm.x"], variables)["python"] == expected


def test_versions_of_torch_come_without_importing_it(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("raise ImportError('slow')\n")
    (packages / "torch" / "version.py").write_text(
        "__version__ = '9.9'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    )
    (packages / "torch-9.9.dist-info").mkdir()
    (packages / "torch-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 9.9+cu128\n"
    )
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    found = server_versions([str(python), "-m", "vllm.x"], {"PATH": "", "PYTHONPATH": str(packages)})
    assert (found["torch"], found["cuda"]) == ("9.9+cu128", "12.8")
    assert "hip" not in found


@pytest.mark.parametrize(
    "head", ["", "#!/bin/sh", "#!/nosuch/python3", "\x7fELF", "#!/usr/bin/env", "#!/bin/false\n'''exec' /x"]
)
def test_programs_that_tell_no_version(tmp_path: Path, head: str) -> None:
    program = script(tmp_path / "vllm", head)
    assert server_versions([str(program), "serve"], {"PATH": os.environ["PATH"]}) == {}
    failing = script(tmp_path / "python3", "#!/bin/false")
    for words in ([str(failing)], ["docker", "run"], [], ["python\0"], ["nosuch/vllm"]):
        assert server_versions(words, {"PATH": ""}) == {}


# --- the host -----------------------------------------------------------------------------------------------------------


def test_the_facts_in_words(tmp_path: Path) -> None:
    gpu = Gpu("NVIDIA H100 NVL", 2, 99986964480.0, "9.0", "550.54")
    facts = HostFacts("AMD EPYC 9354", 32, 2.0**38, (gpu,), "Linux 6.1", "3.12.4")
    words = facts_in_words(facts, tmp_path)
    assert words == {
        "cpu": "AMD EPYC 9354", "cores": "32", "memory": "256.0 GiB", "kernel": "Linux 6.1", "profiled_by": "Python 3.12.4",
        "gpus": "2 x NVIDIA H100 NVL, driver 550.54", "file_system": file_system_of(tmp_path).kind,
    }  # fmt: skip
    assert facts_in_words(host_facts())["cpu"]


def test_a_launch_is_a_value() -> None:
    launch = launch_of("vllm serve m")
    assert launch == Launch(("vllm", "serve", "m"), {}, EngineConfig.from_command("vllm serve m"), None)
