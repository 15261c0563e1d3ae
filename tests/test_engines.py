"""The registry of engines, what they declare, and that nothing outside their folders knows one."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import calibration
import startup_model
from startup_model import EngineConfig, HardwareConfig, ModelConfig, engines, predict
from startup_model.engines.engine import Engine, Flag, Launch, Order, Resolved, Span
from startup_model.engines.flags import integer, sizes, switch, with_value
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.versions import Version

SOURCES = [
    (f"{package.__name__}/{path.relative_to(root)}", ast.parse(path.read_text(encoding="utf-8")))
    for package in (startup_model, calibration)
    for root in [Path(str(package.__file__)).parent]
    for path in sorted(root.rglob("*.py"))
]
MODEL = ModelConfig.from_catalogue("meta-llama/Llama-3.1-8B-Instruct")
NODE = HardwareConfig.preset("h100-sxm")

# --- the sources --------------------------------------------------------------------------------------------------------

# Files that may name an engine for good: a phase says which engines have it, references say what was measured.
MAY_NAME = {"startup_model/phases.py", "calibration/fit/reference.py", "calibration/runs/published.py"}


def test_nothing_outside_the_folders_knows_an_engine() -> None:
    names = {*engines.built_in(), *(core for engine in engines.built_in().values() for core in engine.cores)}
    knowing = {
        file
        for file, tree in SOURCES
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    }
    folders = {
        f"startup_model/engines/{engine.name.replace('.', '_').replace('-', '_')}/"
        for engine in engines.built_in().values()
    }
    outside = {file for file in knowing if not any(file.startswith(folder) for folder in folders)}
    assert outside - {"startup_model/engines/__init__.py"} == MAY_NAME


# --- the registry -------------------------------------------------------------------------------------------------------


def test_every_folder_is_an_engine_of_its_name() -> None:
    found = engines.all_engines()
    assert found.keys() >= {"vllm", "sglang", "tgi", "llama.cpp", "lmdeploy", "tensorrt-llm"}
    assert all(engines.find(name) is engine and engine.name == name for name, engine in found.items())
    assert {name for name, engine in found.items() if engine.is_predicted} >= {"vllm", "sglang"}


@pytest.mark.parametrize("name", ["vlm", "", "VLLM", "../vllm", "config", "a" * 1000, "\0"])
def test_unknown_engines_are_refused_with_the_nearest_name(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"engine = .*(did you mean|known:)"):
        engines.find(name)
    with pytest.raises(ConfigError):
        EngineConfig(engine=name)


def test_an_engine_that_is_read_from_logs_only_is_not_predicted() -> None:
    with pytest.raises(ConfigError, match=r"engine = 'tgi': its starts are only read from logs; known: sglang, vllm"):
        EngineConfig(engine="tgi")
    with pytest.raises(ConfigError, match="only read from logs"):
        engines.find("tgi").resolve(EngineConfig(), MODEL, NODE, (1,))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"generation": "v2"}, r"generation = 'v2': not a known name; known: v0, v1"),
        ({"generation": "v0", "version": "0.11.0"}, r"generation = 'v0': vllm 0.11.0 has no such core; omit it"),
        ({"generation": "v1", "version": "0.5.5"}, r"generation = 'v1': vllm 0.5.5 has no such core"),
    ],
)
def test_cores_are_those_of_the_version(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**fields)  # type: ignore[arg-type]


def test_only_the_engine_in_use_is_imported() -> None:
    code = """if True:
        import sys
        from startup_model import predict
        predict("Llama-2-7b-hf", "h100-nvl")
        print(*sorted(name for name in sys.modules if name.startswith("startup_model.engines.") and name.count(".") == 2), "yaml" in sys.modules)"""
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"startup_model.engines.vllm", "False"} <= set(words)
    assert not {f"startup_model.engines.{name}" for name in ("sglang", "tgi", "command")} & set(words)


def test_orders_differ_from_that_of_the_phases() -> None:
    def order(**fields: str) -> Order:
        return engines.find(fields.get("engine", "vllm")).order(EngineConfig(**fields).resolve(MODEL, NODE))  # type: ignore[arg-type]

    assert order(version="0.10.1.1") == order(version="0.33.0") == Order()
    assert order(version="0.7.0").moved == {"tokenizer_load": "framework_bootstrap"}
    assert order(engine="sglang").left_out == {"memory_profiling"}
    assert order(engine="sglang").after["model_init"] == ("worker_spawn",)


# --- an engine of another package ---------------------------------------------------------------------------------------


def resolve(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> Resolved:
    return config.with_defaults(
        model, version, "tiny", gpu_memory_utilization=0.8, max_num_batched_tokens=512, max_num_seqs=64, block_size=32, compiles=version >= (2,)
    )  # fmt: skip


TINY = Engine(
    name="tiny",
    default_version="1.0",
    resolve=resolve,
    launch=Launch(("tiny", "serve"), "--model", "tiny", "server.py", positional_model=True),
    flags={
        "--model": Flag("model", str),
        "--ranks": Flag("tp", integer, with_value),
        "--eager": Flag("enforce_eager", switch, lambda flag, value, version: (flag,) if value else ()),
        "--sizes": Flag("capture_sizes", sizes, with_value, Span((2,))),
    },
)


@pytest.fixture
def tiny() -> Iterator[Engine]:
    yield engines.register(TINY)
    engines.unregister("tiny")


def test_an_engine_that_is_registered_is_predicted_like_any_other(tiny: Engine) -> None:
    config = EngineConfig.from_command("TINY_X=1 tiny serve a/b --eager --ranks 2 --sizes 1 2 --other 3")
    assert (config.engine, config.model, config.tp, config.enforce_eager, config.capture_sizes) == (
        "tiny",
        "a/b",
        2,
        True,
        (1, 2),
    )
    assert (config.unused_flags, config.environment) == (("--other",), {"TINY_X": "1"})
    assert EngineConfig.from_command("docker run x/tiny:v1.2 --model a/b").version == "1.2"
    written = config.replace(unused_flags=())
    assert written.to_command() == "TINY_X=1 tiny serve a/b --ranks 2 --eager --sizes 1 2"
    with pytest.raises(ConfigError, match=r"tiny 1\.0 has no --sizes"):
        written.replace(version="1.0").to_command()
    resolved = EngineConfig(engine="tiny", max_num_seqs=8).resolve(MODEL, NODE)
    assert (resolved.version_text, resolved.block_size, resolved.max_num_seqs, resolved.compiles) == (
        "1.0",
        32,
        8,
        False,
    )
    found = predict(MODEL, NODE, EngineConfig(engine="tiny", version="2.0"))
    assert found.total_s > 0
    assert any("no profile was measured with tiny" in warning for warning in found.warnings)


def test_an_engine_that_is_forgotten_is_unknown_again(tiny: Engine) -> None:
    engines.unregister("tiny")
    with pytest.raises(UnknownNameError):
        engines.find("tiny")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Entry points of other packages: name -> what loading gives, or raises."""
    offered: dict[str, object] = {}

    def entry(name: str, given: object) -> SimpleNamespace:
        def load() -> object:
            if isinstance(given, Exception):
                raise given
            return given

        return SimpleNamespace(name=name, value=f"{name}_package:ENGINE", load=load)

    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: [entry(*item) for item in offered.items()] if group == engines.GROUP else [],
    )
    engines.forget_installed()
    yield offered
    engines.unregister("tiny")
    engines.forget_installed()


def test_engines_of_other_packages_are_found_by_their_entry_point(installed: dict[str, object]) -> None:
    installed["tiny"] = TINY
    installed["vllm"] = ImportError("not the one")  # ours comes first
    assert EngineConfig(engine="tiny").engine == "tiny"
    assert engines.all_engines()["tiny"] is TINY
    assert engines.find("vllm").package == "startup_model.engines.vllm"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ImportError("no module\nnamed x"), r"cannot be loaded: ImportError\('no module"),
        (SystemError(), "cannot be loaded: SystemError"),
        (TINY._replace(name="other"), "must lead to a startup_model.engines.Engine of this name"),
        ("an engine", "must lead to a startup_model.engines.Engine"),
    ],
)
def test_a_broken_package_is_named_and_breaks_nothing_else(
    installed: dict[str, object], given: object, message: str
) -> None:
    installed["tiny"] = given
    assert predict("Llama-2-7b-hf", "h100-nvl").total_s > 0
    with pytest.raises(
        ConfigError, match=rf"engine = 'tiny': {message}.*; update or remove the package of tiny_package:ENGINE"
    ) as refused:
        engines.find("tiny")
    assert str(refused.value).isprintable()
    with pytest.warns(RuntimeWarning, match="engine = 'tiny'.*left out"):
        assert "tiny" not in engines.all_engines()
    assert "tiny" not in engines.all_engines()  # told once


def test_what_is_registered_in_the_place_of_another_counts_from_then_on(tiny: Engine) -> None:
    asked = (MODEL, NODE, EngineConfig(engine="tiny"))
    assert "memory_profiling" in predict(*asked).phases
    engines.register(tiny._replace(order=lambda _: Order(left_out=frozenset({"memory_profiling"}))))
    assert "memory_profiling" not in predict(*asked).phases
