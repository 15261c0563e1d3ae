"""What an engine declares: how it is started, what its versions make of flags, in which order it passes through a start.

An engine is one folder beside this file (or one installed package with an entry point) that defines ``ENGINE``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from startup_model.errors import ConfigError
from startup_model.files import package_text
from startup_model.versions import Version

if TYPE_CHECKING:
    from startup_model.engines.config import EngineConfig
    from startup_model.engines.logtable import LogTable
    from startup_model.hardware import HardwareConfig
    from startup_model.models.config import ModelConfig

FIRST: Version = ()
NEVER: Version = (10**9,)
NOTHING: Mapping[str, Any] = MappingProxyType({})


class LoadFormat(NamedTuple):
    """How a load format reads a checkpoint."""

    reads_weights: bool = True
    """False: weights are made up on the device (dummy)."""
    overlap: float = 0.0
    """Share of the shorter of reading and copying that is hidden behind the longer: 0 one after the other, 1 at the same time."""
    passes: float = 1.0
    """Passes over the bytes in host memory: 1 for a memory-mapped file; 2 where a pickle is rebuilt first (OPT-6.7B from .bin
    files took 2.5 s where safetensors of the size take 1.6 s, arXiv 2606.07362)."""


class CaptureCount(NamedTuple):
    """Graphs captured at start-up."""

    total: int = 0
    """Graphs of all modes together."""
    full: int = 0
    """Of these, graphs of whole decode steps; the others are piecewise."""
    sizes: tuple[int, ...] = ()
    """Batch sizes of the main list."""


class Resolved(NamedTuple):
    """The flags of one start with every default filled in, and what its version does; see the fields of the same name in EngineConfig."""

    engine: str
    version: Version
    version_text: str
    generation: str
    """The core that runs; the engine's own name where it has one only."""
    dtype_bytes: float
    kv_cache_dtype_bytes: float
    gpu_memory_utilization: float
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    load_format: LoadFormat
    swap_space: float = 0.0
    compiles: bool = False
    captures: CaptureCount = CaptureCount()
    estimate_captures: int = 0
    """Graphs that are captured once more to measure their memory."""
    profiles_memory: bool = True
    """A forward pass of the largest batch measures the activations, which are taken off the pool."""
    takes_off_graphs: bool = False
    """The memory of graphs is taken off before the pool is sized."""
    buffer_bytes: float = 0.0
    """Buffers of one rank that are allocated, and counted, with the weights."""
    max_pool_bytes: float = math.inf
    """What the engine gives to the pool at most where no flag says more."""
    is_hybrid: bool = False
    """Layers of different needs share one pool; before, windowed layers kept every token."""
    group_size_ratio: float = 1.0
    """Unequal kinds of layers are padded to the larger number when that is less than so many times the smaller."""
    counts_by_request: bool = False
    """Tokens of the pool are reported as concurrency x max_model_len instead of blocks x block size / groups."""


class Order(NamedTuple):
    """What differs from the order of the phases in ``startup_model.phases``. All names are those of phases."""

    left_out: frozenset[str] = frozenset()
    """Phases that this engine does not pass through."""
    moved: Mapping[str, str] = NOTHING
    """Phase -> the phase that it comes directly after."""
    after: Mapping[str, tuple[str, ...]] = NOTHING
    """Phase -> the phases that it waits for, where that is not just the one before it: what stands between runs at the same time."""


class Span(NamedTuple):
    """The versions that have something."""

    since: Version = FIRST
    """First version that has it."""
    before: Version = NEVER
    """First version that has it no more."""

    def __contains__(self, version: object) -> bool:
        return isinstance(version, tuple) and self.since <= version < self.before


class OlderServe(NamedTuple):
    """What starts the server of older versions; the model stands behind its flag there."""

    before: Version
    """First version that ``Launch.words`` start for certain."""
    words: tuple[str, ...]


class ReadyTimeout(NamedTuple):
    """How long a server waits for its own engine before it gives up."""

    variable: str
    """Sets another time [s]."""
    since: Version
    """First version that reads the variable."""
    seconds: int
    """Without it."""

    @property
    def since_text(self) -> str:
        """The version as it is written."""
        return ".".join(map(str, self.since))


class Deploy(NamedTuple):
    """What runs an engine in a container and scales it."""

    title: str
    """The engine's name in sentences."""
    image: str
    """Published image for NVIDIA devices; its tags are ``v`` and the version."""
    port: int
    """Where the server listens unless it is told otherwise."""
    gauges: tuple[str, str]
    """Prometheus gauges of requests in progress and in the queue."""
    older_serve: OlderServe | None = None
    """Where ``Launch.words`` are not those of every version."""
    health: str = "/health"
    """Answers 200 once the engine is ready, without a key."""
    probe_timeout_s: int = 5
    """How long one probe waits for its answer; a busy server takes longer than the second that is Kubernetes' default."""
    listens_everywhere: bool = True
    """False: on the loopback interface alone unless ``--host`` says otherwise, where no probe arrives."""
    ready_timeout: ReadyTimeout | None = None
    secret_variables: Mapping[str, str] = NOTHING
    """Flag of a secret -> variable that the engine reads instead: it then appears in no list of processes and no log of arguments."""


Reader = Callable[[Any], Any]
Writer = Callable[[str, Any, Version], tuple[str, ...]]


class Flag(NamedTuple):
    """What a flag fills, and how. Readers and writers that engines share are in ``flags``."""

    field: str | None
    """Field of EngineConfig; None: ``read`` gives a dict of fields."""
    read: Reader
    """Its value (values, of a flag that takes several) -> that of the field, or a dict of fields. Raises StartupModelError that says what it must be."""
    write: Writer | None = None
    """(flag, value, version) -> words, none where the engine does it by itself; None: the flag is only read."""
    versions: Span = Span()
    has_keys: bool = False
    """Its value is a JSON object whose keys may stand behind a dot, as in ``-O.level``."""


class Variable(NamedTuple):
    """What an environment variable fills, and how."""

    field: str
    read: Reader
    values: Mapping[Any, str] = NOTHING
    """Value of the field -> that of the variable; empty: the variable is only read."""
    versions: Span = Span()
    """Versions that need it: others do so by themselves."""


class Launch(NamedTuple):
    """How a server is started: to recognise a command, and to write one."""

    words: tuple[str, ...]
    """What starts it."""
    model_flag: str
    program: str
    """Name of its program, Python package and distribution; names of its images begin with it."""
    script: str
    """Name of the file that starts its server."""
    positional_model: bool = False
    """Whether ``PROGRAM serve`` takes the model without its flag."""


class Http(NamedTuple):
    """How a running server listens and is asked."""

    version_paths: tuple[str, ...] = ()
    """Answer an object with its ``version``; the one of the newest releases first."""
    key_flag: str = "--api-key"
    """Flag with the key that requests need; ``Deploy.secret_variables`` has the variable that is read for it where the flag is not given."""
    address_flags: tuple[str, ...] = (
        *("--host", "--port", "--uds", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"),
        *("--ssl-ciphers", "--ssl-keyfile-password", "--enable-ssl-refresh"),
    )
    """Flags that say where and how it listens: who measures a start chooses the loopback interface, without encryption."""


class CacheNotes(NamedTuple):
    """What a cache holds besides compiled code, and has to be copied into a fresh one."""

    variable: str
    """Names the root of the cache."""
    default: str
    """The root where the variable is not set, below the home folder."""
    folder: str
    """What is copied, below the root."""


class Caches(NamedTuple):
    """Where compiled code is kept for the next start, and how compiling is switched off."""

    variables: Mapping[str, str] = NOTHING
    """Variable that names the root of a cache -> name of its folder in a fresh place."""
    notes: tuple[CacheNotes, ...] = ()
    """What is copied into fresh ones."""
    off: Mapping[str, Any] = NOTHING
    """Fields of EngineConfig, with their values, by which nothing is compiled."""


class JointFlag(NamedTuple):
    """A flag that holds several fields: a second one would replace the first."""

    flag: str = ""
    fields: frozenset[str] = frozenset()
    """Of EngineConfig."""
    alone: str = ""
    """Pattern of its values that say one field only."""


ONLY_LOGS = "its starts are only read from logs"


def _only_logs(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> Resolved:
    raise ConfigError("engine", config.engine, ONLY_LOGS)


class Engine(NamedTuple):
    """All that is known of one engine. Fields that a room does not need of an engine stay at their neutral default."""

    name: str
    """As users write it, such as ``vllm``; its folder has the same name, with ``_`` for ``.`` and ``-``."""
    package: str | None = None
    """The Python package (``__name__``) in which its data files lie."""
    default_version: str | None = None
    """Version that is assumed where none is given; None: starts are read from its logs, but not predicted."""
    cores: Mapping[str, Span] = NOTHING
    """Cores that EngineConfig.generation may name -> the versions that have them. Empty: there is one, of the engine's name."""
    resolve: Callable[[EngineConfig, ModelConfig, HardwareConfig, Version], Resolved] = _only_logs
    """Every flag with a value: the one given, else what the version derives for this model on this node (``EngineConfig.with_defaults`` helps)."""
    order: Callable[[Resolved], Order] = lambda _: Order()
    """What differs from the order of the phases for such a start."""
    listed_by_count: Span = Span(NEVER)
    """Versions whose batch sizes of graphs follow from their number: 1, 2, 4, 8, 16, 24 ..."""
    launch: Launch | None = None
    flags: Mapping[str, Flag] = NOTHING
    """Flag -> what it fills. All other flags of a command are listed in EngineConfig.unused_flags."""
    variables: Mapping[str, Variable] = NOTHING
    """Environment variable -> what it fills."""
    compose: Callable[[dict[str, Any], Version | None], list[str]] = lambda fields, version: []
    """Words for fields that are written together; takes these out of the fields."""
    arity: str | None = None
    """Data file with all flags of the server, by how many values they take; None: those of ``flags``."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions a record of a run names."""
    deploy: Deploy | None = None
    """For manifests; None: none can be written for this engine."""
    http: Http = Http()
    caches: Caches = Caches()
    joint_flag: JointFlag = JointFlag()
    imports_in_a_row: int = 0
    """How often a start imports the engine's package one after the other, by one process after another; 0: not known."""

    @property
    def is_predicted(self) -> bool:
        """False when starts are only read from its logs."""
        return self.default_version is not None

    @property
    def log(self) -> LogTable | None:
        """What its log says, from ``log.toml`` in its folder, read when it is asked for; None: it has none."""
        from startup_model.engines.logtable import read_table

        has_log = self.package is not None and _has(self.package, "log.toml")
        return read_table(self.name, self.text("log.toml")) if has_log else None

    def text(self, name: str) -> str:
        """The content of a data file in the folder of the engine."""
        return _text(self.package or "", name)


@lru_cache(maxsize=64)
def _has(package: str, name: str) -> bool:
    from importlib.resources import files

    return files(package).joinpath(name).is_file()


@lru_cache(maxsize=64)
def _text(package: str, name: str) -> str:
    return package_text(name, package)
