"""The profile of a host: coefficients with their provenance, what they were fitted on, and how far to trust them.

Profiles are JSON files: data only, with a schema version; old ones are migrated by pure dict -> dict steps. A profile
is written atomically and holds no path, no time stamp and no name of a machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from startup_model.errors import ProfileError, StartupModelError, UnknownNameError, shown
from startup_model.files import canonical_json, read_json_object, write_atomically
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.phases import TERMS, Term
from startup_model.versions import Version, parse_version

_MAX_PROFILE_BYTES = 64 * 2**20

SCHEMA_VERSION: Literal[3] = 3

CHANGES_SINCE: Mapping[int, str] = {
    1: "schema 2 also holds how far formulas miss and what is peculiar to some models, which fits and intervals use; fit the profile again to have them",
    2: "schema 3 also says which numbers of its host nobody has measured; fit the profile again so that measuring them (probe) does not change its predictions",
}
"""Schema version of an old file -> what the owner should know about the changes since."""


AssumedNumber = Literal["gpu_memory_bandwidth", "page_cache_bandwidth", "device_flops"]
ASSUMED_NUMBERS: tuple[AssumedNumber, ...] = get_args(AssumedNumber)
"""Fields of ``Host`` that may be assumed."""


class _Tolerant(FrozenModel):
    """What a newer release adds is kept and written back, and named in one warning."""

    model_config = ConfigDict(extra="allow")


class CoefficientValue(_Tolerant):
    """One coefficient with its provenance."""

    value: Annotated[float, Field(ge=0)]
    unit: str
    std_error: Annotated[float, Field(ge=0)] | None = None
    source: Literal["fitted", "fixed", "borrowed", "absent"]
    """fitted: from this profile's runs; fixed: a constant with a source; borrowed: from another host or measurement; absent: the profile is older
    than the coefficient, which then has the value that changes nothing."""
    note: str = ""


class Host(_Tolerant):
    """The host that the runs were made on, with the hardware numbers that its coefficients are relative to."""

    cpu: str
    gpu: str
    platform: str = "cuda"
    single_thread_score: Annotated[float, Field(gt=0)] | None = None
    """None: not known. CPU-bound phases then take as long as on this host, whatever the score of the node."""
    gpu_memory_bandwidth: Annotated[float, Field(gt=0)]
    page_cache_bandwidth: Annotated[float, Field(gt=0)]
    local_nvme_bandwidth: Annotated[float, Field(gt=0)] | None = None
    network_disk_bandwidth: Annotated[float, Field(gt=0)] | None = None
    object_store_bandwidth: Annotated[float, Field(gt=0)] | None = None
    host_to_device_bandwidth: Annotated[float, Field(gt=0)]
    device_flops: Annotated[float, Field(gt=0)]
    assumed: Annotated[tuple[AssumedNumber, ...], Field(strict=False)] = ()
    """Numbers of a host without accelerators that nobody has measured: those of its preset, or of another host. They stand in for its own in the coefficients, and
    therefore also where such a node gives its own."""


class VersionEffect(_Tolerant):
    """What another engine version does to the phases, relative to the profile's version."""

    version: str
    generation: str
    scales: dict[str, Annotated[float, Field(ge=0)]]
    """Phase -> factor; phases that are not named: 1."""
    source: str


class HeldOut(_Tolerant):
    """Relative errors (predicted / measured - 1) of totals of groups that the fit had not seen."""

    by: str
    errors: dict[str, Annotated[float, Field(gt=-1.0)]]
    """Group -> error of its total; for a group of several runs the one largest in size."""


class Provenance(_Tolerant):
    """Where the coefficients come from."""

    citation: str
    runs: dict[str, Annotated[int, Field(ge=0)]]
    """Data set -> number of runs used."""
    records_digest: str
    """SHA-256 of the records, as they were read."""


class Profile(_Tolerant):
    """Coefficients of one host for one engine version. ``Profile.load(path)``, ``profile.save(path)``,
    ``Profile.reference(name)``."""

    schema_version: Literal[3] = SCHEMA_VERSION
    written_as_schema: Annotated[int, Field(ge=1, lt=SCHEMA_VERSION)] | None = None
    """Older schema that the profile was first written in; None: the present one."""
    name: Annotated[str, Field(min_length=1, max_length=200)]
    kind: Literal["reference", "calibrated"]
    engine: str
    engine_version: str
    generation: str
    """v0, v1 or sglang."""
    runs_version: str | None = None
    """Version of all runs where it is another than ``engine_version``, which the coefficients are relative to."""
    host: Host
    coefficients: dict[str, dict[str, dict[str, CoefficientValue]]]
    """Term -> variant (``default``, ``compile_cache=cold``, ``load_format=...`` ...) -> coefficient."""
    version_effects: Annotated[tuple[VersionEffect, ...], Field(strict=False)] = ()
    version_spread: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation of the logarithm of a phase's scale between neighbouring versions."""
    transfer_spread: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Phase -> standard deviation of the logarithm of its scale between hosts."""
    transfer_hosts: Annotated[int, Field(ge=0)] = 0
    """Number of hosts behind ``transfer_spread``."""
    session_spread: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Phase -> standard deviation of the logarithm of its scale between sessions (other days) on one host."""
    sessions: Annotated[int, Field(ge=0)] = 0
    """Number of sessions behind ``session_spread``."""
    shape_spread: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Phase -> standard deviation, over models, of the logarithm of one host's phase over another's: what one factor a phase
    cannot carry from host to host."""
    misfit: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Phase -> relative error of the phase for models that the fit had not seen, on one host."""
    one_run_spread: Annotated[float, Field(ge=0)] = 0.0
    """Relative error of totals on a host that one run has calibrated: root mean square over reference hosts and runs."""
    held_out: HeldOut
    model_effects: dict[str, dict[str, Annotated[float, Field(gt=0)]]] = Field(default_factory=dict)
    """Structure of a model (``ModelConfig.structure``) -> phase -> factor: what is peculiar to a measured model beyond its sizes,
    as far as it holds on other hosts too."""
    domain: dict[str, Annotated[tuple[float, float], Field(strict=False)]] = Field(default_factory=dict)
    """Input -> (smallest, largest) over the runs."""
    layer_kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Kinds of layers that the runs had."""
    provenance: Provenance

    @model_validator(mode="before")
    @classmethod
    def _without_covariance(cls, data: Any) -> Any:
        """Files of earlier releases hold covariances, which nothing reads."""
        return {k: v for k, v in data.items() if k != "covariance"} if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _check(self) -> Self:
        parse_version(self.engine_version)
        if self.runs_version is not None:
            parse_version(self.runs_version)
        if not any(term.set_name in self.coefficients for term in TERMS.values()):
            raise ProfileError("coefficients: it holds none of the terms that are known here; fit the profile again")
        return self

    # --- files ---

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file; old schemas are migrated. Raises InputFileError, ProfileError or ConfigError, in one line."""
        return cls.from_dict(read_json_object(Path(path), _MAX_PROFILE_BYTES, "a profile"), str(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], name: str = "profile") -> Self:
        """From the content of a file. Raises ProfileError or ConfigError."""
        try:
            return cls.model_validate(migrate(data, name))
        except ProfileError:
            raise
        except StartupModelError as error:
            raise ProfileError(f"{name}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write to a file: the whole new one or the old one, whatever happens on the way. Raises InputFileError."""
        write_atomically(Path(path), self.to_json())

    def to_json(self) -> str:
        """The text of the file: the same for the same profile."""
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def reference(cls, name: str) -> Profile:
        """A reference profile that comes with the package, by name. Raises UnknownNameError."""
        table = _references()
        if name not in table:
            raise UnknownNameError("profile", name, table)
        return table[name]

    def without_model_effects(self, structures: Collection[str] | None = None) -> Self:
        """The profile without what is peculiar to some models (``ModelConfig.structure``), or to all: as if it had never met them."""
        kept = {} if structures is None else {k: v for k, v in self.model_effects.items() if k not in structures}
        return self if len(kept) == len(self.model_effects) else self.replace(model_effects=kept)

    # --- reading coefficients ---

    @cached_property
    def values(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Term -> variant -> coefficient -> number, as the profile holds them."""
        return {
            term: {
                variant: {name: entry.value for name, entry in values.items()} for variant, values in variants.items()
            }
            for term, variants in self.coefficients.items()
        }

    def entries(self, term: Term, keys: tuple[str, ...]) -> tuple[str, Mapping[str, CoefficientValue]]:
        """Variant and coefficients of a term: the first of ``keys`` for which the profile has a set, with what is absent filled in."""
        variant = self.variant(term.set_name, keys)
        held = self.coefficients.get(term.set_name, {}).get(variant, {})
        return variant, {
            name: held.get(name) or CoefficientValue(value=meta.absent, unit=meta.unit, source="absent")
            for name, meta in term.coefficients.items()
        }

    @property
    def absent(self) -> tuple[str, ...]:
        """Terms, or single coefficients of them (``term.coefficient``), that are younger than the profile."""
        found = []
        for term in TERMS.values():
            if term.coefficients and term.set_name == term.name:
                held = self.coefficients.get(term.name, {}).get("default", {})
                names = [name for name in term.coefficients if name not in held]
                found += [term.name] if len(names) == len(term.coefficients) else [f"{term.name}.{n}" for n in names]
        return tuple(found)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Terms, coefficients and fields of a newer release: kept and written back, not used."""
        parts = {"": self, "host.": self.host, "held_out.": self.held_out, "provenance.": self.provenance}
        parts |= {f"version_effects.{i}.": effect for i, effect in enumerate(self.version_effects)}
        found = [f"{place}{name}" for place, part in parts.items() for name in part.model_extra or ()]
        for term, variants in self.coefficients.items():
            known = TERMS[term].coefficients if term in TERMS else None
            names = {name for entries in variants.values() for name in entries}
            found += [term] if known is None else [f"{term}.{name}" for name in sorted(names - known.keys())]
            extra = (
                (f"{term}.{name}", entry.model_extra) for held in variants.values() for name, entry in held.items()
            )
            found += dict.fromkeys(f"{place}.{name}" for place, fields in extra for name in fields or ())
        return tuple(found)

    @cached_property
    def parsed_version(self) -> Version:
        """``engine_version`` as numbers."""
        return parse_version(self.engine_version)

    def variant(self, set_name: str, keys: tuple[str, ...]) -> str:
        """The first of ``keys`` for which the profile has coefficients of the term."""
        variants = self.coefficients.get(set_name, {})
        return next((key for key in keys if key in variants), "default")

    def effect_of(self, version: Version, generation: str) -> VersionEffect | None:
        """What another version does to the phases; None when the profile's own coefficients stand for it.

        Of the measured versions of the same generation (the profile's own among them) the last at or before it counts, else the first
        after it.
        """
        measured = [
            (parse_version(effect.version), effect)
            for effect in self.version_effects
            if effect.generation == generation
        ]
        rows: list[tuple[Version, VersionEffect | None]] = [*measured]
        if generation == self.generation:
            rows.append((self.parsed_version, None))
        rows.sort(key=lambda row: row[0])
        before = [row for row in rows if row[0] <= version]
        return (before[-1] if before else rows[0])[1] if rows else None

    def was_measured_at(self, version: Version, generation: str) -> bool:
        """Whether the profile rests on runs of exactly this version."""
        if (version, generation) == (self.parsed_version, self.generation):
            return True
        if self.runs_version is not None and parse_version(self.runs_version) == version:
            return True
        return any(parse_version(e.version) == version and e.generation == generation for e in self.version_effects)


@lru_cache(maxsize=1)
def _references() -> dict[str, Profile]:
    """All reference profiles of the package by name."""
    from importlib.resources import files

    folder = files("startup_model").joinpath("data/profiles")
    texts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".json")
    )
    return {(profile := Profile.from_dict(json.loads(text), name)).name: profile for name, text in texts}


def reference_names() -> tuple[str, ...]:
    """Names of the reference profiles."""
    return tuple(_references())


class Selection(NamedTuple):
    """A profile, why it was taken, and how near its host is."""

    profile: Profile
    reason: str
    same_cpu: bool
    same_gpu: bool

    @property
    def same_host(self) -> bool:
        """The node has the processor and the accelerator of the profile's host."""
        return self.same_cpu and self.same_gpu


def judge_profile(profile: Profile, hardware: HardwareConfig) -> Selection:
    """A given profile beside the node that it is to be used for."""
    same_cpu, same_gpu = same_name(profile.host.cpu, hardware.cpu.model), same_name(profile.host.gpu, hardware.gpu)
    cpu = "same processor" if same_cpu else f"processor {hardware.cpu.model}, that of the profile's host is"
    gpu = "same accelerator" if same_gpu else f"accelerator {hardware.gpu}, that of the profile's host is"
    reason = f"{profile.engine} {profile.engine_version} ({profile.generation}); {cpu} {profile.host.cpu}; {gpu} {profile.host.gpu}"
    return Selection(profile, reason, same_cpu, same_gpu)


@lru_cache(maxsize=4096)
def select_reference(engine: str, generation: str, version: Version, hardware: HardwareConfig) -> Selection:
    """The reference profile nearest to a start, by an explicit rule.

    First the engine and its generation, then its version, then the processor (the same model), then the accelerator (the
    same, else the nearest memory bandwidth).
    """

    def closeness(profile: Profile) -> tuple[bool, bool, float, bool, bool, float]:
        distance = abs(_as_number(profile.parsed_version) - _as_number(version))
        bandwidth = abs(math.log(profile.host.gpu_memory_bandwidth / hardware.gpu_memory_bandwidth))
        near = judge_profile(profile, hardware)
        same_engine = profile.engine == engine
        return same_engine, profile.generation == generation, -distance, near.same_cpu, near.same_gpu, -bandwidth

    return judge_profile(max(_references().values(), key=closeness), hardware)


def same_name(a: str, b: str) -> bool:
    """Whether two hardware names mean the same thing, spelling aside."""
    return _normalized(a) == _normalized(b)


@lru_cache(maxsize=4096)
def _normalized(name: str) -> str:
    return "".join(ch for ch in name.lower().removeprefix("nvidia").replace("sxm5", "sxm") if ch.isalnum())


def _as_number(version: Version) -> float:
    """A version on one axis: 0.10.1.1 -> 10.0101."""
    return float(sum(part * 100.0 ** (1 - place) for place, part in enumerate(version[:4])))


# --- older files --------------------------------------------------------------------------------------------------------


def _from_1(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schema 2 has deviations and effects of models that schema 1 did not know: they start empty."""
    empty: dict[str, Any] = {"shape_spread": {}, "misfit": {}, "model_effects": {}, "one_run_spread": 0.0}
    return empty | dict(data) | {"schema_version": 2, "written_as_schema": 1}


def _from_2(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schema 3 has hosts without a single-thread score, and hosts with assumed numbers: in schema 2 a score that was left out was 1, and every number counted."""
    host = data.get("host")
    scored = {"host": {"single_thread_score": 1.0} | dict(host)} if isinstance(host, Mapping) else {}
    return {"written_as_schema": 2} | dict(data) | scored | {"schema_version": 3}


_STEPS: Mapping[int, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {1: _from_1, 2: _from_2}


def migrate(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """``data`` in the current schema, by pure steps from one schema to the next. Raises ProfileError for a newer or a missing schema version."""
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ProfileError(
            f"{name}: schema_version = {shown(version)}; a profile has a whole number from 1 to {SCHEMA_VERSION} there"
        )
    if version > SCHEMA_VERSION:
        raise ProfileError(
            f"{name}: schema_version = {version}, this release reads up to {SCHEMA_VERSION}; upgrade startup-model or fit the profile again"
        )
    for step in range(version, SCHEMA_VERSION):
        data = _STEPS[step](data)
    return data
