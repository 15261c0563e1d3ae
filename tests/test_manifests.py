"""Manifests: they parse back, Kubernetes' published schemas take them, and their times never fall below what was predicted."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes_validate.utils import all_versions

from startup_model import EngineConfig, HardwareConfig, Profile, StartupPrediction, manifests, predict
from startup_model.engines import find, register, unregister
from startup_model.engines.command import pasted_words
from startup_model.engines.engine import Deploy, Engine, OlderServe, ReadyTimeout
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError
from startup_model.manifests import (
    FORMATS,
    DeploymentRequest,
    cooldown_reason,
    evidence_reason,
    lead_reason,
    ready_timeout_reason,
    render,
    timings,
    warm_reason,
    whole_reason,
)
from startup_model.manifests.container import engine_arguments
from startup_model.manifests.render import filled, quoted
from startup_model.manifests.request import check_label, label_from
from startup_model.manifests.times import MAX_S, USUAL_READY_TIMEOUT_S, segment_time
from startup_model.phases import BEFORE_ENGINE, PHASES, Phase
from startup_model.planning import DEFAULT_QUANTILE, ScalingPolicy, groups_needed, pool_size
from startup_model.planning.times import start_with
from startup_model.secrets import holds_secret, is_secret_name
from startup_model.units import format_seconds

LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
README_COMMAND = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4"
SGLANG_COMMAND = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2"
QWEN = "Qwen/Qwen3-8B"

VERSIONS = (all_versions()[0], all_versions()[-1])
"""The oldest and the newest Kubernetes whose published schemas come with kubernetes-validate."""

CORE = ("kubernetes", "hpa", "configmap")
"""Formats of Kubernetes itself."""

YAML_FORMATS = tuple(name for name, entry in FORMATS.items() if entry.kind == "yaml")


def node(**changes: Any) -> HardwareConfig:
    return HardwareConfig.preset("h100-sxm", **changes)


@lru_cache(maxsize=16)
def predicted(command: str = README_COMMAND, gpus: int = 4) -> StartupPrediction:
    served = EngineConfig.from_command(command).model
    assert served is not None
    return predict(served, node(gpus=gpus, storage={"tier": "network_disk"}), command)


def request(command: str | None = README_COMMAND, **changes: Any) -> DeploymentRequest:
    known = command if isinstance(command, str) else README_COMMAND
    return DeploymentRequest(**({"prediction": predicted(known), "command": command} | changes))


def simple(command: str, **changes: Any) -> DeploymentRequest:
    """A small model's prediction under a command that names another one."""
    engine = EngineConfig.from_command(command)
    return DeploymentRequest(
        prediction=predict(QWEN, node(gpus=max(1, engine.tp * engine.dp)), engine), command=command, **changes
    )


def over_network(bandwidth: float) -> StartupPrediction:
    """The 70B model on four H100 that read its 141 GB over a network of this bandwidth [B/s]."""
    storage = {"tier": "network_disk", "network_disk": bandwidth}
    return predict(LLAMA_70B, node(gpus=4, storage=storage), README_COMMAND, page_cache="cold")


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def document(name: str, plan: DeploymentRequest) -> Any:
    (content,) = documents(render(name, plan))
    return content


def container(plan: DeploymentRequest, name: str = "kubernetes") -> Any:
    (found,) = document(name, plan)["spec"]["template"]["spec"]["containers"]
    return found


def validate(content: Any, versions: tuple[str, ...] = VERSIONS) -> None:
    for version in versions:
        kubernetes_validate.validate(content, version, strict=True)


def pod(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


# --- what the issue asks to be shown ---------------------------------------------------------------------------------


def test_the_probe_of_the_readme_s_command_validates() -> None:
    """A 70B model on four H100 that reads from network storage, by the command line alone."""
    plan = DeploymentRequest(prediction=predicted(), command=README_COMMAND)
    probe = document("startup-probe", plan)["startupProbe"]
    validate(pod({"containers": [{"name": "x", "image": "x", "startupProbe": probe}]}))
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    needed = predicted().quantile(DEFAULT_QUANTILE) * plan.policy.margin_factor
    assert needed <= allowed < needed + probe["periodSeconds"]
    assert probe["httpGet"] == {"path": "/health", "port": 8000}
    validate(document("kubernetes", plan))


def test_the_deployment_serves_the_command() -> None:
    content = document("kubernetes", request())
    (runs,) = content["spec"]["template"]["spec"]["containers"]
    assert runs["image"] == "vllm/vllm-openai:v0.10.1.1"
    assert runs["command"] == ["vllm", "serve"]
    assert runs["args"] == [LLAMA_70B, "-tp", "4", "--port", "8000"]
    assert runs["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert runs["ports"] == [{"containerPort": 8000}]
    assert {"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": str(timings(request()).ready_timeout_s)} in runs["env"]
    assert content["metadata"]["name"] == "llama-3-1-70b-instruct"
    assert content["spec"]["selector"]["matchLabels"] == content["spec"]["template"]["metadata"]["labels"]


def test_the_grace_period_is_left_alone() -> None:
    for name in YAML_FORMATS:
        assert "terminationGrace" not in render(name, request(profile=Profile.reference("l40s-epyc-9354")))


def test_numbers_carry_their_reasons() -> None:
    plan = request(policy=ScalingPolicy(quantile=0.9, margin_factor=1.2))
    times = timings(plan)
    assert f"failureThreshold: {times.failure_threshold}  # x 10 s = {times.startup_limit_s} s >= 0.9 quantile {times.ready_s:.1f} s x 1.2" in render(
        "startup-probe", plan
    )  # fmt: skip
    text = render("kubernetes", plan)
    assert re.search(r"# startup probe \d+ s \+ \(provision 120.0 s \+ image_pull .*\) x 1.2\n  progressDeadline", text)
    assert text.startswith(f"# {LLAMA_70B} on 4 x h100-sxm with vllm 0.10.1.1: ready after ")
    assert "# not calibrated" in text
    assert "# page_cache and compile_cache unknown: counted as cold" in text


# --- schemas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [README_COMMAND, SGLANG_COMMAND], ids=["vllm", "sglang"])
@pytest.mark.parametrize("name", CORE)
def test_kubernetes_takes_what_is_its_own(name: str, command: str) -> None:
    plan = request(
        command,
        profile=Profile.reference("h100-nvl-epyc-9354"),
        namespace="serving",
        volume_claim="models",
        replicas_min=2,
    )
    for content in documents(render(name, plan)):
        validate(content)
        assert content["metadata"]["namespace"] == "serving"


@pytest.mark.parametrize("platform", ["cpu", "rocm"])
def test_other_devices(platform: str) -> None:
    hardware = (
        node(gpus=0, platform="cpu", gpu_memory="200 GB") if platform == "cpu" else HardwareConfig.preset("mi300x")
    )
    plan = DeploymentRequest(
        prediction=predict("Qwen/Qwen3-0.6B", hardware, max_model_len=4096), image="registry.example/engine:1"
    )
    content = document("kubernetes", plan)
    validate(content)
    runs = content["spec"]["template"]["spec"]["containers"][0]
    assert runs.get("resources", {}).get("limits", {}) == ({} if platform == "cpu" else {"amd.com/gpu": "1"})
    with pytest.raises(ConfigError, match=f"image: no published image is known for platform {platform}; name one"):
        render("kubernetes", plan.replace(image=None))


def test_keda() -> None:
    """Fields of ScaledObject: kedacore/keda, apis/keda/v1alpha1/scaledobject_types.go (2.20); trigger: pkg/scalers/prometheus_scaler.go."""
    plan = request(replicas_min=0, replicas_max=5, requests_per_replica=7)
    content, times = document("keda", plan), timings(plan)
    assert (content["apiVersion"], content["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    spec = content["spec"]
    assert set(spec) == {
        "scaleTargetRef", "pollingInterval", "initialCooldownPeriod", "cooldownPeriod", "minReplicaCount", "maxReplicaCount", "advanced",
        "triggers",
    }  # fmt: skip
    assert spec["pollingInterval"] == 30  # of the policy's detection_s
    assert spec["cooldownPeriod"] == times.cooldown_s >= 300
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 5)
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert set(trigger["metadata"]) == {"serverAddress", "query", "threshold"}
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert trigger["metadata"]["threshold"] == "7"
    behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    validate(document("hpa", plan.replace(replicas_min=1))["spec"] and hpa_with(behaviour))
    assert "at zero replicas the engine reports no metric" in render("keda", plan)


def hpa_with(behaviour: Any) -> dict[str, Any]:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "x"}, "maxReplicas": 2, "behavior": behaviour}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"}, "spec": spec}


def test_hpa_behaviour_stays_within_the_limits_of_autoscaling_v2() -> None:
    """pkg/apis/autoscaling/validation: stabilizationWindowSeconds 0 to 3600, periodSeconds 1 to 1800."""
    slow = DeploymentRequest(prediction=over_network(20e6), policy=ScalingPolicy(quantile=0.6, decision_s=5000.0))
    behaviour = document("hpa", slow)["spec"]["behavior"]
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 3600
    assert behaviour["scaleUp"]["stabilizationWindowSeconds"] == 3600
    assert {rule["periodSeconds"] for rule in behaviour["scaleUp"]["policies"]} == {1800}
    assert "an HPA allows an hour" in render("hpa", slow)
    assert "an HPA allows half an hour" in render("hpa", slow)


def test_karpenter() -> None:
    """kubernetes-sigs/karpenter, pkg/apis/v1/nodepool.go (1.14): Disruption and Budget, with the patterns there."""
    plan = request()
    text = render("karpenter", plan)
    assert "# partial: kubectl patch nodepool" in text
    (content,) = documents(text)
    assert (content["apiVersion"], content["kind"]) == ("karpenter.sh/v1", "NodePool")
    disruption = content["spec"]["disruption"]
    assert set(disruption) == {"consolidationPolicy", "consolidateAfter", "budgets"}
    assert disruption["consolidationPolicy"] in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
    assert re.fullmatch(r"(([0-9]+(s|m|h))+|Never)", disruption["consolidateAfter"])
    assert int(disruption["consolidateAfter"][:-1]) >= timings(plan).whole_s
    for budget in disruption["budgets"]:
        assert set(budget) <= {"nodes", "reasons", "schedule", "duration"}
        assert re.fullmatch(r"(100|[0-9]{1,2})%|[0-9]+", budget["nodes"])
        assert set(budget["reasons"]) <= {"Underutilized", "Empty", "Drifted"}


@pytest.mark.parametrize("least", [0, 1])
def test_knative(least: int) -> None:
    """knative/serving 1.23: pkg/apis/autoscaling/register.go, pkg/apis/serving/register.go, pkg/apis/serving/v1/revision_types.go."""
    plan = request(replicas_min=least, replicas_max=3, volume_claim="models")
    content, times = document("knative", plan), timings(plan)
    assert (content["apiVersion"], content["kind"]) == ("serving.knative.dev/v1", "Service")
    template = content["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    assert all(isinstance(value, str) for value in annotations.values())
    names = {"min-scale", "max-scale", "target", "scale-down-delay"} | (
        {"scale-to-zero-pod-retention-period"} if least == 0 else set()
    )
    assert set(annotations) == {f"autoscaling.knative.dev/{name}" for name in names} | {
        "serving.knative.dev/progress-deadline"
    }
    assert annotations["serving.knative.dev/progress-deadline"] == f"{times.progress_deadline_s}s"
    delay = annotations["autoscaling.knative.dev/scale-down-delay"]
    assert int(delay.removesuffix("s")) == min(3600, times.cooldown_s)  # WindowMax is an hour
    spec = dict(template["spec"])
    if least == 0:  # both, since the second defaults to 300 s (revision_defaults.go) and the activator heeds it
        assert spec.pop("timeoutSeconds") == spec.pop("responseStartTimeoutSeconds") == times.first_answer_s
        assert f"max-revision-timeout-seconds of at least {times.first_answer_s}" in render("knative", plan)
    assert set(spec) == {"containers", "volumes"}
    validate(pod(spec))
    assert spec["containers"][0]["startupProbe"]["failureThreshold"] == times.failure_threshold
    assert "podspec-persistent-volume-claim" in render("knative", plan)


def test_ray_serve() -> None:
    """ray 2.60, python/ray/serve/config.py AutoscalingConfig and ray/llm LLMConfig; KubeRay's constant.go: ray.io/initializing-timeout."""
    plan = request(replicas_min=0)
    serve, service = documents(render("ray-serve", plan))
    times = timings(plan)
    scaling = serve["deployment_config"]["autoscaling_config"]
    assert set(scaling) <= {
        "min_replicas", "initial_replicas", "max_replicas", "target_ongoing_requests", "metrics_interval_s", "look_back_period_s",
        "upscaling_factor", "downscaling_factor", "downscale_delay_s", "downscale_to_zero_delay_s", "upscale_delay_s", "aggregation_function",
    }  # fmt: skip
    assert scaling["min_replicas"] <= scaling["initial_replicas"] <= scaling["max_replicas"]
    assert scaling["downscale_delay_s"] == scaling["downscale_to_zero_delay_s"] == times.cooldown_s
    assert set(serve) == {"deployment_config", "runtime_env"}
    assert serve["runtime_env"]["env_vars"]["VLLM_ENGINE_READY_TIMEOUT_S"] == str(times.ready_timeout_s)
    assert service["metadata"]["annotations"] == {"ray.io/initializing-timeout": f"{times.progress_deadline_s}s"}
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")


def test_simulators() -> None:
    """BLIS: sim/bundle.go (strict keys, seconds); llm-d-inference-sim: pkg/common/config.go (a Go duration); Dynamo 1.6: mocker/config.py."""
    plan = request()
    cold_s = predicted().slowest_s
    bundle = document("blis", plan)
    delay = bundle["instance_lifecycle"]["loading_delay"]
    assert set(bundle) == {"instance_lifecycle"}
    assert set(bundle["instance_lifecycle"]) == {"loading_delay"}
    assert set(delay) == {"mean", "stddev"}
    start = predict(LLAMA_70B, node(gpus=4, storage={"tier": "network_disk"}), README_COMMAND, page_cache="cold", compile_cache="cold", include=("image_pull", "container_start"))  # fmt: skip
    assert (
        delay["mean"]
        > start.total_s
        == pytest.approx(cold_s + sum(start.segments[phase] for phase in ("image_pull", "container_start")))
    )
    assert start.quantile(0.6) < delay["mean"] + delay["stddev"] < start.quantile(0.95)
    duration = document("llm-d-inference-sim", plan)["startup-duration"]
    assert re.fullmatch(r"[0-9]+\.[0-9]{3}s", duration)
    assert float(duration[:-1]) == pytest.approx(cold_s, abs=1e-3)
    assert json.loads(render("dynosim", plan)) == {"startup_time": pytest.approx(cold_s, abs=1e-3)}


def test_the_environment_is_a_line_to_source() -> None:
    text = render("env", request())
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [f"export VLLM_ENGINE_READY_TIMEOUT_S={timings(request()).ready_timeout_s}"]
    assert [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("#")] == [[]] * (
        len(text.splitlines()) - 1
    )


def test_the_configmap_holds_the_profile() -> None:
    profile = Profile.reference("h100-nvl-epyc-9354")
    content = document("configmap", request(profile=profile))
    assert Profile.from_dict(json.loads(content["data"]["profile.json"])) == profile
    own = predict(QWEN, "l40s", profile=profile)
    assert document("configmap", DeploymentRequest(prediction=own))["data"] == content["data"]
    assert "data:\n  profile.json: |\n    {" in render("configmap", request(profile=profile))


def test_a_configmap_without_a_profile_and_one_that_is_too_large() -> None:
    with pytest.raises(ConfigError, match="profile: nothing to put into a ConfigMap; give one that calibrate wrote"):
        render("configmap", request())
    profile = Profile.reference("l40s-epyc-9354")
    notes = {f"phase-{number}": {"x" * 100: 1.0} for number in range(10_000)}
    with pytest.raises(ConfigError, match="more than the 1048576 of a ConfigMap; keep it in a volume instead"):
        render("configmap", request(profile=profile.replace(model_effects=notes)))


def test_json_has_every_number() -> None:
    plan = request()
    data = json.loads(render("json", plan))
    assert data["timings"] == json.loads(json.dumps(timings(plan)._asdict()))
    assert data["policy"]["quantile"] == DEFAULT_QUANTILE
    assert data["warm_replicas"] is None
    assert data["segments"]["provision"] == 120.0
    assert data["starts"] is True


# --- timings -----------------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    ScalingPolicy,
    quantile=st.floats(0.01, 0.99),
    margin_factor=st.floats(1.0, 10.0),
    detection_s=st.floats(0.0, 600.0),
)
PERIODS = st.integers(1, 3600)


@settings(max_examples=80, deadline=None)
@given(policy=POLICIES, period=PERIODS, bandwidth=st.floats(1e8, 1e11))
def test_a_probe_allows_the_budget_and_less_than_one_period_more(
    policy: ScalingPolicy, period: int, bandwidth: float
) -> None:
    prediction = over_network(bandwidth)
    times = timings(DeploymentRequest(prediction=prediction, policy=policy, period_s=period))
    budget = prediction.quantile(policy.quantile) * policy.margin_factor
    assert times.budget_s == pytest.approx(budget)
    assert times.budget_s <= times.startup_limit_s == times.period_s * times.failure_threshold
    assert times.startup_limit_s < times.budget_s + period
    assert times.startup_limit_s - period < times.budget_s
    # The kubelet's last failure: the n-th probe, of which the first is no earlier than the delay.
    assert times.initial_delay_s + (times.failure_threshold - 1) * period >= times.budget_s
    assert times.progress_deadline_s >= times.startup_limit_s + policy.margin_factor * times.before_s - 1e-6
    assert times.progress_deadline_s >= policy.margin_factor * times.whole_s
    assert times.ready_timeout_s >= max(USUAL_READY_TIMEOUT_S, times.startup_limit_s)
    assert times.cooldown_s >= times.lead_time_s
    for field, value in times._asdict().items():
        if isinstance(value, int):
            assert value >= (0 if field == "decision_s" else 1), field
            assert value < 2**31


@settings(max_examples=50, deadline=None)
@given(
    quantile=st.floats(0.5, 0.99),
    margin=st.floats(1.0, 5.0),
    period=PERIODS,
    bandwidth=st.floats(1e8, 1e11),
    slower=st.floats(1.0, 3.0),
)
def test_a_slower_prediction_never_gives_a_smaller_time(
    quantile: float, margin: float, period: int, bandwidth: float, slower: float
) -> None:
    policy = ScalingPolicy(quantile=quantile, margin_factor=margin)
    fast = timings(DeploymentRequest(prediction=over_network(bandwidth), policy=policy, period_s=period))
    slow = timings(DeploymentRequest(prediction=over_network(bandwidth / slower), policy=policy, period_s=period))
    for field, before, after in zip(fast._fields, fast, slow, strict=True):
        assert after >= before * (1 - 1e-12), field


def test_slower_storage_never_gives_a_smaller_time() -> None:
    rates = (20e9, 5e9, 1e9, 0.3e9, 0.1e9)
    found = [
        timings(DeploymentRequest(prediction=predict(QWEN, node(storage={"local_nvme": rate}), page_cache="cold")))
        for rate in rates
    ]
    for fast, slow in pairwise(found):
        assert all(after >= before for before, after in zip(fast, slow, strict=True))


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9, 0.99])
def test_segments_that_a_prediction_includes_change_nothing(quantile: float) -> None:
    plain = predict(QWEN, node())
    every = predict(QWEN, node(), include=("provision", "image_pull", "container_start", "first_request"))
    policy = ScalingPolicy(quantile=quantile)
    mine, theirs = (timings(DeploymentRequest(prediction=p, policy=policy)) for p in (plain, every))
    assert mine == pytest.approx(theirs)
    whole = predict(QWEN, node(), include=BEFORE_ENGINE)
    assert start_with(plain, BEFORE_ENGINE).quantile(quantile) == whole.quantile(quantile) == mine.whole_s
    assert start_with(every).quantile(quantile) == plain.quantile(quantile) == mine.ready_s


def test_level_and_safety_factor_of_a_prediction_are_kept() -> None:
    careful = start_with(predict(QWEN, node(), level=0.5, safety_factor=1.2), BEFORE_ENGINE)
    assert (careful.level, careful.safety_factor) == (0.5, 1.2)


def test_segments_scatter_by_themselves_and_not_where_the_node_gives_them() -> None:
    """A node of 120 s, 10 GB at 0.1 GB/s and a container of 2 s: once counted as if the host they share were unknown, 222 s at 0.99 became 1266 s."""
    whole = predict(QWEN, node(), include=BEFORE_ENGINE)
    assumed = segment_time(whole, BEFORE_ENGINE)
    assert assumed.seconds == pytest.approx(sum(whole.segments[phase] for phase in BEFORE_ENGINE))
    scatter = [whole.phases[phase].seconds * PHASES[phase].spread for phase in BEFORE_ENGINE]
    deviation = math.log(assumed.factor(NormalDist().cdf(1.0)))
    assert deviation == pytest.approx(math.hypot(*scatter) / assumed.seconds)
    assert assumed.quantile(0.5) == assumed.seconds < assumed.quantile(0.99) < 3.5 * assumed.seconds
    given_by_node = node(provision_s=120, image_bytes=10e9, image_pull_bandwidth=0.1e9, container_start_s=2)
    times = timings(DeploymentRequest(prediction=predict(QWEN, given_by_node), policy=ScalingPolicy(quantile=0.99)))
    assert times.before_s == pytest.approx(222.0)
    assert times.progress_deadline_s <= times.startup_limit_s + math.ceil(1.3 * 222.0)
    assert "provisioning_delay of a node pool: mean 120.000, stddev 0.000" in render(
        "blis", DeploymentRequest(prediction=predict(QWEN, given_by_node))
    )
    assert segment_time(whole, ()).quantile(0.9) == 0.0


def with_errors(errors: list[float]) -> StartupPrediction:
    """On a host that a profile with these errors of held-out groups was calibrated on."""
    profile = Profile.reference("h100-nvl-epyc-9354")
    held_out = profile.held_out.replace(errors={f"model {number}": error for number, error in enumerate(errors)})
    own = profile.replace(kind="calibrated", held_out=held_out)
    hardware = HardwareConfig.preset("h100-nvl", cpu={"model": profile.host.cpu})
    prediction = predict(QWEN, hardware, profile=own, page_cache="cold", compile_cache="warm")
    assert prediction.calibrated
    return prediction


NOTED = tuple(name for name in FORMATS if name not in ("configmap", "dynosim"))
"""Formats with comments on the start, and json."""


@pytest.mark.parametrize("name", NOTED)
def test_a_profile_with_too_few_runs_for_the_quantile_says_so_and_offers_the_bound(name: str) -> None:
    """0.99 needs 99 errors of held-out groups, since the largest of n is above the next with probability n / (n + 1)."""
    policy = ScalingPolicy(quantile=0.99)
    few = with_errors([0.02] * 12)
    text = " ".join(render(name, DeploymentRequest(prediction=few, policy=policy)).split())
    words = "0.99 needs 99 held-out groups, the profile has 12: the quantile rests on an assumed distribution; the SLO bound is"
    assert words in text
    assert f"{words} {format_seconds(few.slo_bound_s)} (1.5 x {format_seconds(few.slowest_s)})" in text
    enough = render(name, DeploymentRequest(prediction=few, policy=ScalingPolicy(quantile=0.9)))
    assert "held-out groups," not in enough
    assert "held-out groups," not in render(name, DeploymentRequest(prediction=with_errors([0.02] * 99), policy=policy))


def test_without_a_profile_of_the_host_no_quantile_is_shown_by_runs() -> None:
    plan = DeploymentRequest(prediction=predicted(), policy=ScalingPolicy(quantile=0.9))
    times = timings(plan)
    assert evidence_reason(plan, times) == (
        "0.9 needs 9 held-out groups, there is no profile of the host: the quantile rests on an assumed distribution; the SLO bound is "
        f"{format_seconds(predicted().slo_bound_s)} (1.5 x {format_seconds(predicted().slowest_s)} with cold caches)"
    )
    assert times.slo_bound_s == predicted().slo_bound_s == pytest.approx(1.5 * times.slowest_s)
    evidence = json.loads(render("json", plan))["quantile_evidence"]
    assert evidence == {"groups_needed": groups_needed(0.9), "held_out_groups": 0, "note": evidence_reason(plan, times)}
    own = DeploymentRequest(prediction=with_errors([0.02] * 9), policy=ScalingPolicy(quantile=0.9))
    assert json.loads(render("json", own))["quantile_evidence"] == {
        "groups_needed": 9,
        "held_out_groups": 9,
        "note": "",
    }


def test_reasons_that_a_table_can_print() -> None:
    plan = DeploymentRequest(
        prediction=predicted(), policy=ScalingPolicy(quantile=0.9, decision_s=60.0), replicas_min=2, warm_replicas=3
    )
    times = timings(plan)
    whole = whole_reason(plan, times)
    assert whole.startswith("provision 120.0 s + image_pull ")
    assert lead_reason(plan, times) == f"detection 30.0 s + decision 60.0 s + ({whole})"
    assert lead_reason(plan.replace(policy=ScalingPolicy(quantile=0.9)), times) == f"detection 30.0 s + ({whole})"
    assert (
        cooldown_reason(plan, times)
        == f"not let go sooner than it can be had back: a new replica takes {times.lead_time_s} s"
    )
    assert cooldown_reason(plan.replace(policy=ScalingPolicy(cooldown_s=5000)), times) == "as given"
    assert (
        ready_timeout_reason(times)
        == f"the startup limit {times.startup_limit_s} s, and not below the engine's own 600 s"
    )
    assert warm_reason(plan) == "the demands expected need 3 warm; raise it to keep them"
    assert warm_reason(plan.replace(warm_replicas=2)) == "the demands expected need 2 warm"
    assert warm_reason(plan.replace(warm_replicas=None)) == ""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("kubernetes", "replicas: 1  # leave it out where an autoscaler sets it; the demands expected need 3 warm"),
        ("hpa", "minReplicas: 1  # the demands"),
        ("keda", "minReplicaCount: 1  # the demands"),
        ("knative", "autoscaling.knative.dev/min-scale: '1'  # the demands"),
        ("ray-serve", "min_replicas: 1  # the demands"),
    ],
)
def test_warm_replicas_are_said_beside_the_least_number(name: str, line: str) -> None:
    """A demand every 100 s and a start of 85 s: P(N >= 3) is 0.055 for N Poisson of mean 0.85, P(N >= 4) 0.012."""
    size = pool_size(85.0, 0.01, 0.06)
    assert size == 3
    plan = request(warm_replicas=size)
    assert line in render(name, plan)
    assert "raise it to keep them" in render(name, plan)
    assert json.loads(render("json", plan))["warm_replicas"] == 3
    assert "the demands expected" not in render(name, request())


def test_the_policy_decides() -> None:
    policy = ScalingPolicy(quantile=0.6, detection_s=12.5, decision_s=60.0, cooldown_s=5000.0)
    times = timings(DeploymentRequest(prediction=predicted(), policy=policy))
    assert (times.polling_s, times.decision_s, times.cooldown_s, times.stabilisation_s) == (13, 60, 5000, 3600)
    with pytest.raises(ConfigError, match=r"cooldown_s = 1\.0: must be at least the cold start of"):
        timings(DeploymentRequest(prediction=predicted(), policy=ScalingPolicy(quantile=0.6, cooldown_s=1.0)))


def test_short_starts_keep_the_engine_s_own_timeout() -> None:
    """vLLM's default is 600 s (vllm/envs.py); a shorter one would only add a second way to end a start."""
    quick = DeploymentRequest(prediction=predict("Qwen/Qwen3-0.6B", node(), page_cache="hot", compile_cache="warm"))
    times = timings(quick)
    assert times.startup_limit_s < 600 == times.ready_timeout_s


def test_a_quantile_beyond_a_week_is_refused() -> None:
    for policy in (ScalingPolicy(quantile=0.999), ScalingPolicy(quantile=0.99, margin_factor=10.0)):
        wide = over_network(5e6)
        with pytest.raises(
            ConfigError, match=r"policy.quantile = 0.99\d*: a start of .* no deadline waits that long; ask for a lower"
        ):
            timings(DeploymentRequest(prediction=wide, policy=policy))  # fmt: skip
    endless = with_errors([1e300])
    assert endless.quantile(DEFAULT_QUANTILE) == math.inf
    with pytest.raises(ConfigError, match=r"a start of inf s, .* no deadline waits that long"):
        timings(DeploymentRequest(prediction=endless))
    with pytest.raises(ConfigError, match=r"policy = .* more than a week; shorten its times"):
        timings(DeploymentRequest(prediction=predicted(), policy=ScalingPolicy(quantile=0.6, detection_s=MAX_S + 1.0)))


# --- a server that does not start --------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_gives_no_manifest_unless_forced() -> None:
    small = predict("meta-llama/Llama-2-13b-hf", HardwareConfig.preset("l4"))
    assert not small.memory.fits
    for name in FORMATS:
        with pytest.raises(
            ConfigError,
            match=r"prediction = 'meta-llama/Llama-2-13b-hf': does not start .*; change it \(.*, or force the manifest",
        ):
            render(name, DeploymentRequest(prediction=small))  # fmt: skip
    forced = DeploymentRequest(prediction=small, force=True)
    assert all(render(name, forced) for name in FORMATS if name != "configmap")
    text = render("kubernetes", forced)
    assert "# THE SERVER DOES NOT START (WEIGHTS_DO_NOT_FIT, " in text
    validate(documents(text)[0])
    with pytest.raises(ConfigError) as refused:
        render("json", DeploymentRequest(prediction=small))
    assert small.memory.remedies[0].action in str(refused.value)


def test_an_engine_over_several_nodes_has_numbers_but_no_deployment() -> None:
    wide = predict(LLAMA_70B, node(gpus=4, nodes=2), "vllm serve x -tp 4 -pp 2")
    for name in ("kubernetes", "knative"):
        with pytest.raises(ConfigError, match=r"hardware.nodes = 2: one server spans them \(8 ranks, 4 on a node\)"):
            render(name, DeploymentRequest(prediction=wide))
    for name in ("startup-probe", "json", "keda", "hpa"):
        assert render(name, DeploymentRequest(prediction=wide))


# --- the command ---------------------------------------------------------------------------------------------------------


def test_sglang_has_no_variable_of_vllm() -> None:
    plan = request(SGLANG_COMMAND, profile=Profile.reference("l40s-epyc-9354"))
    for name in FORMATS:
        if name != "env":
            assert "VLLM" not in render(name, plan)
    with pytest.raises(ConfigError, match="format = 'env': sglang waits for its workers without a limit"):
        render("env", plan)
    runs = container(plan)
    assert runs["image"] == "lmsysorg/sglang:v0.5.4"
    assert runs["command"] == ["python3", "-m", "sglang.launch_server"]
    # Its own default is the loopback interface (srt/server_args.py), where no probe arrives.
    assert runs["args"] == ["--model-path", QWEN, "--tp", "2", "--host", "0.0.0.0", "--port", "30000"]  # noqa: S104
    assert runs["startupProbe"]["timeoutSeconds"] == 20


@pytest.fixture
def declared() -> Iterator[Callable[[Deploy | None], Engine]]:
    """Declares how SGLang is deployed."""
    yield lambda deploy: register(find("sglang")._replace(deploy=deploy))
    unregister("sglang")


def test_an_engine_says_how_it_is_deployed(declared: Callable[[Deploy | None], Engine]) -> None:
    older = OlderServe((0, 5, 5), ("old", "words"))
    timeout = ReadyTimeout("ITS_TIMEOUT_S", since=(1, 2), seconds=30)
    declared(Deploy("It", "own/image", 77, ("it:running", "it:waiting"), older, "/up", 3, ready_timeout=timeout, secret_variables={"--api-key": "ITS_KEY"}))  # fmt: skip
    plan = simple("python -m sglang.launch_server --model-path m/x --api-key abc --tp 2")
    runs = container(plan)
    assert (runs["command"], runs["image"]) == (["old", "words"], "own/image:v0.5.4")
    assert runs["args"] == ["--model-path", "m/x", "--tp", "2", "--port", "77"]
    assert runs["startupProbe"]["httpGet"] == {"path": "/up", "port": 77}
    assert runs["startupProbe"]["timeoutSeconds"] == 3
    assert [entry["name"] for entry in runs["env"]] == ["ITS_TIMEOUT_S", "ITS_KEY"]
    assert "It before 1.2 does not read ITS_TIMEOUT_S and may give up after 30 s" in render("kubernetes", plan)
    assert "export ITS_TIMEOUT_S=" in render("env", plan)
    assert "sum(it:waiting{" in render("keda", plan)
    assert timings(plan).ready_timeout_s == timings(plan).startup_limit_s
    assert "and not below the engine's own 30 s" in render("env", plan)


def test_an_engine_that_does_not_say_how_it_is_deployed_has_its_numbers(
    declared: Callable[[Deploy | None], Engine],
) -> None:
    declared(None)
    plan = request(SGLANG_COMMAND, profile=Profile.reference("l40s-epyc-9354"))
    for name in ("karpenter", "configmap", "blis", "llm-d-inference-sim", "dynosim", "json"):
        assert render(name, plan)
    for name in ("kubernetes", "startup-probe", "hpa", "keda", "knative", "ray-serve", "env"):
        with pytest.raises(
            ConfigError,
            match=r"^engine = 'sglang': how it is deployed is not known; take json, karpenter or a simulator$",
        ):
            render(name, plan)


def test_flags_that_the_prediction_does_not_use_are_kept() -> None:
    command = "vllm serve Qwen/Qwen3-8B --served-model-name yes 1e3 --trust-remote-code --tool-call-parser hermes -O3 --port=9001 --host 127.0.0.1"
    plan = simple(command)
    assert container(plan)["args"] == [
        QWEN, "--served-model-name", "yes", "1e3", "--trust-remote-code", "--tool-call-parser", "hermes", "-O3", "--host", "0.0.0.0",  # noqa: S104
        "--port", "9001",
    ]  # fmt: skip
    assert container(plan)["startupProbe"]["httpGet"]["port"] == 9001
    assert container(plan.replace(port=7000))["args"][-1] == "7000"
    assert container(simple("vllm serve m/x --port x", port=7000))["args"][-2:] == ["--port", "7000"]
    assert 'model_name="yes"' in document("keda", plan)["spec"]["triggers"][0]["metadata"]["query"]
    text = render("kubernetes", plan)
    assert "- 'yes'\n" in text  # go-yaml and YAML 1.2 would read the plain words as true and 1000
    assert "- '1e3'\n" in text


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("docker run --gpus all -p 80:8000 vllm/vllm-openai:v0.14.0 --model m/x --enforce-eager", ["m/x", "--enforce-eager"]),
        ("bash -c 'vllm serve m/x --enforce-eager'", ["m/x", "--enforce-eager"]),
        ("M=m/x\nvllm serve $M \\\n  --seed 3", ["m/x", "--seed", "3"]),
        ("python -m vllm.entrypoints.openai.api_server --model=m/x --no-enable-prefix-caching", ["m/x", "--no-enable-prefix-caching"]),
    ],
)  # fmt: skip
def test_layouts_of_commands(command: str, expected: list[str]) -> None:
    runs = container(simple(command))
    assert runs["args"] == [*expected, "--port", "8000"]
    assert runs["image"] == ("vllm/vllm-openai:v0.14.0" if "docker" in command else "vllm/vllm-openai:v0.10.1.1")


def test_the_words_of_a_paste() -> None:
    """Variables that it sets are filled in, dashes of word processors made plain; what is no command of an engine has none."""
    found = pasted_words("docker run -e A=b vllm/vllm-openai:v0.14.0 --model $M \u2014seed 3")
    assert found is not None
    assert found.words == ("docker", "run", "-e", "A=b", "vllm/vllm-openai:v0.14.0", "--model", "$M", "--seed", "3")
    assert (found.environment, found.image) == ({"A": "b"}, "vllm/vllm-openai:v0.14.0")
    found = pasted_words("M=m/x\nbash -c 'vllm serve $M'")
    assert found is not None
    assert (found.words, found.environment, found.image) == (("vllm", "serve", "m/x"), {"M": "m/x"}, None)
    for other in ("ls", "containers:\n- image: vllm/vllm-openai\n  args: [--model, m/x]"):
        assert pasted_words(other) is None
    with pytest.raises(ConfigError, match="must be at most 65536 characters"):
        pasted_words("x" * 70_000)


def test_only_public_names_of_other_modules_are_used() -> None:
    folder = Path(manifests.__file__).parent
    for file in [*folder.glob("*.py"), *(folder.parent / "planning").glob("*.py")]:
        for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith("_")], file.name


def test_a_pasted_manifest_is_rebuilt_from_its_flags() -> None:
    command = 'containers:\n- image: vllm/vllm-openai:v0.14.0\n  args: ["--model", "m/x", "--max-model-len", "4096", "--seed", "3"]'
    plan = simple(command)
    assert container(plan)["args"] == ["m/x", "--max-model-len", "4096", "--port", "8000"]
    assert "# not carried over, since only their names are known: --seed; give the command line itself" in render(
        "kubernetes", plan
    )


def test_without_a_command_the_flags_are_those_of_the_prediction() -> None:
    engine = EngineConfig(tp=2, max_model_len=4096, enforce_eager=True, gpu_memory_utilization=0.8, version="0.5.0")
    plan = DeploymentRequest(prediction=predict(QWEN, node(gpus=2), engine), volume_claim="models")
    runs = container(plan)
    assert runs["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]  # before vllm serve
    assert runs["args"] == [
        "--model", QWEN, "--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.8", "--max-model-len", "4096",
        "--enforce-eager", "--port", "8000",
    ]  # fmt: skip
    assert [mount["mountPath"] for mount in runs["volumeMounts"]] == ["/dev/shm", "/root/.cache/huggingface"]  # noqa: S108


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        (EngineConfig(model="m/x", tp=2, pp=2, expert_parallel=True, quantization="fp8", kv_cache_dtype="fp8"), (0, 11)),
        (EngineConfig(model="m/x", gpu_memory_utilization=0.55, max_model_len=4096, enforce_eager=True, prefix_caching=False), (0, 20)),
        (EngineConfig(model="m/x", capture_sizes=(1, 2, 8), cudagraph_mode="full_and_piecewise", max_num_seqs=7), (0, 12)),
        (EngineConfig(model="m/x", max_capture_size=64, swap_space=2.0**31, optimization_level=2), (0, 10)),
        (EngineConfig(model="m/x", engine="sglang", tp=2, max_num_batched_tokens=4096, prefix_caching=False, capture_sizes=(1, 4)), (0, 5, 4)),
    ],
)  # fmt: skip
def test_flags_from_a_configuration_read_back_as_it(engine: EngineConfig, version: tuple[int, ...]) -> None:
    command = engine_arguments(engine, version)
    start = "vllm serve m/x" if engine.engine == "vllm" else "python -m sglang.launch_server --model-path m/x"
    pasted = pasted_words(f"{start} {shlex.join(command.words)}")
    assert pasted is not None
    assert EngineConfig.from_command(shlex.join(pasted.words)) == engine
    flags = [argument for argument in pasted.arguments if argument not in pasted.models()]
    assert [found[:4] for found in flags] == [argument[:4] for argument in command.arguments]


def test_a_flag_that_the_version_does_not_have_is_refused() -> None:
    engine = EngineConfig(model="m/x", swap_space=2.0**31, version="0.20.0")
    with pytest.raises(ConfigError, match=r"engine\.swap_space"):
        render("kubernetes", DeploymentRequest(prediction=predict(QWEN, node(), engine)))


def test_states_that_variables_set_are_kept() -> None:
    engine = EngineConfig(generation="v0", torch_compile=False, environment={"VLLM_LOGGING_LEVEL": "DEBUG"})
    assert engine_arguments(engine, (0, 9)).environment == {
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_USE_V1": "0",
        "TORCH_COMPILE_DISABLE": "1",
    }
    given = simple("VLLM_ENGINE_READY_TIMEOUT_S=90000 NCCL_DEBUG=INFO vllm serve m/x")
    assert {entry["name"]: entry["value"] for entry in container(given)["env"]} == {
        "NCCL_DEBUG": "INFO",
        "VLLM_ENGINE_READY_TIMEOUT_S": "90000",
    }


def test_https_and_local_folders() -> None:
    plan = simple("vllm serve /models/qwen --ssl-certfile /tls/crt --ssl-keyfile /tls/key", volume_claim="models", name="qwen")  # fmt: skip
    runs = container(plan)
    assert runs["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000, "scheme": "HTTPS"}
    assert runs["volumeMounts"] == [{"name": "checkpoint", "mountPath": "/models"}]
    validate(document("kubernetes", plan))
    assert "# mount the volume that holds /models/qwen" in render("kubernetes", plan.replace(volume_claim=None))


def test_the_name_of_an_engine_is_no_command() -> None:
    plan = DeploymentRequest(prediction=predict(QWEN, node(), "sglang"), command="sglang", model=f"hub:{QWEN}")
    assert container(plan)["args"][:2] == ["--model-path", QWEN]
    assert plan.label == "qwen3-8b"


def test_a_model_is_no_flag() -> None:
    with pytest.raises(ConfigError, match="model = '--trust-remote-code': the engine would take it for a flag"):
        render("kubernetes", request(command=None, model="--trust-remote-code"))


def test_a_name_from_a_configuration_is_told() -> None:
    plan = DeploymentRequest(prediction=predict("examples/Llama-2-7b-hf", "h100-nvl"))
    assert "# Llama-2-7b-hf is the name in the configuration: give model" in render("kubernetes", plan)
    assert container(plan.replace(model="meta-llama/Llama-2-7b-hf"))["args"][0] == "meta-llama/Llama-2-7b-hf"


def test_old_versions_that_ignore_the_timeout_are_told() -> None:
    assert "vLLM before 0.14 does not read VLLM_ENGINE_READY_TIMEOUT_S" in render("kubernetes", request())
    newer = predict(LLAMA_70B, node(gpus=4, storage={"tier": "network_disk"}), README_COMMAND, version="0.14.0")
    assert "does not read" not in render("kubernetes", DeploymentRequest(prediction=newer))


# --- secrets -------------------------------------------------------------------------------------------------------------

SECRETS = {
    "vllm serve m/x --api-key {}": "VLLM_API_KEY",
    "vllm serve m/x --api-key={}": "VLLM_API_KEY",
    "vllm serve m/x --api_key {}": "VLLM_API_KEY",
    "vllm serve m/x --hf-token {}": "HF_TOKEN",
    "HF_TOKEN={} vllm serve m/x": "HF_TOKEN",
    "docker run -e HF_TOKEN={} vllm/vllm-openai:v0.14.0 --model m/x": "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY={} vllm serve m/x": "AWS_SECRET_ACCESS_KEY",
    "DATABASE=postgres://me:{}@host/x vllm serve m/x": "DATABASE",
    "UNHEARD_OF={} vllm serve m/x": "UNHEARD_OF",
    "VLLM_TARGET_DEVICE=https://a:{}@host/ vllm serve m/x": "VLLM_TARGET_DEVICE",
    "vllm serve m/x --some-password {}": "SOME_PASSWORD",
    "vllm serve m/x --otlp-traces-endpoint http://user:{}@collector:4317": "OTLP_TRACES_ENDPOINT",
    """vllm serve m/x --hf-overrides '{{"api_key": "{}"}}'""": "HF_OVERRIDES",
    "vllm serve https://me:{}@host/m/x": "MODEL",
    "vllm serve 'https://host/m/x?X-Amz-Signature={}'": "MODEL",
    "python -m sglang.launch_server --model-path m/x --api-key {}": "API_KEY",
    "python -m sglang.launch_server --model-path m/x --admin-api-key={}": "ADMIN_API_KEY",
    "python -m sglang.launch_server --model-path m/x --ssl-keyfile-password {}": "SSL_KEYFILE_PASSWORD",
}


@pytest.mark.parametrize("command", SECRETS)
def test_secrets_are_never_printed(command: str) -> None:
    variable = SECRETS[command]
    for secret in ("hf_abcdefghijklmnop", "quite-unremarkable", "-starts-with-a-dash"):
        plan = simple(command.format(secret), name="served")
        assert secret not in repr(plan)
        names = [name for name in FORMATS if name != "configmap" and (name, plan.engine.engine) != ("env", "sglang")]
        texts = {name: render(name, plan) for name in (names if secret.startswith("quite") else ("kubernetes", "json"))}
        assert not [name for name, text in texts.items() if secret.upper() in text.upper()]
        assert secret not in plan.replace(name=None).label
        content = documents(texts["kubernetes"])[0]
        (runs,) = content["spec"]["template"]["spec"]["containers"]
        entry = next(entry for entry in runs["env"] if entry["name"] == variable)
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "served-secrets", "key": variable}}
        assert f"kubectl create secret generic served-secrets --from-literal={variable}=..." in texts["kubernetes"]
    validate(content, VERSIONS[-1:])


def test_labels_hold_no_secret_of_an_address() -> None:
    plan = simple("vllm serve 'https://me:pw@host/org/model-x?token=abcdef'")
    assert plan.label == "model-x"
    assert json.loads(render("json", plan))["model"] == "https://host/org/model-x"
    assert container(plan)["args"][0] == "$(MODEL)"


@pytest.mark.parametrize("name", ["s3://u:pw@b/k", "hf_abcdefghijk"])
def test_a_served_name_that_looks_like_a_secret_is_in_no_query(name: str) -> None:
    plan = simple(f"vllm serve m/x --served-model-name {name}")
    with pytest.raises(
        ConfigError, match=r"^--served-model-name: the query would print it, and it looks like a secret"
    ):
        render("keda", plan)
    assert name not in render("kubernetes", plan)


@pytest.mark.parametrize("model", ["/m/hf_abcdefghijk", "/hf_abcdefghijk/m"])
def test_a_path_that_looks_like_a_token_is_never_printed(model: str) -> None:
    plan = request(command=None, model=model)
    for name in FORMATS:
        if name != "configmap":
            assert "abcdefghijk" not in render(name, plan)
    assert "# mount the volume that holds /" in render("kubernetes", plan)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("/m/hf_abcdefghijk/x", "its folder looks like a secret, and would be printed as mountPath"),
        ("/a:b/c", "Kubernetes mounts nothing at a path with a colon"),
        ("/a:b", "Kubernetes mounts nothing at a path with a colon"),
        ("/", "a volume cannot be mounted in the place of the whole file system"),
        ("//a", "a volume cannot be mounted in the place of the whole file system"),
    ],
)
def test_folders_that_no_volume_is_mounted_at(model: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^model = '.*': {problem}; put the model into another folder") as refused:
        render("kubernetes", request(command=None, model=model, volume_claim="c", name="x"))
    assert "abcdefghijk" not in str(refused.value)


def test_what_is_no_secret_is_printed() -> None:
    command = "vllm serve m/x --max-num-batched-tokens 8192 --tokenizer m/y --skip-tokenizer-init --ssl-keyfile /tls/key --image-token-id 7"
    assert container(simple(command))["args"][:-2] == shlex.split(command)[2:]
    assert [name for name in ("HF_HOME", "--pad-token", "--num-speculative-tokens", "--tokenizer-mode", "--image-token-id") if is_secret_name(name, "x")] == []  # fmt: skip
    assert not holds_secret("gs://asia-southeast1-bucket/model")
    assert not holds_secret("Qwen/Qwen3-8B")


def test_several_secrets_of_one_flag_get_names_of_their_own() -> None:
    runs = container(simple("vllm serve m/x --api-key first second --some-secret=third"))
    assert runs["args"][1:5] == ["--api-key", "$(API_KEY)", "$(API_KEY_2)", "--some-secret=$(SOME_SECRET)"]


def test_dollar_signs_reach_the_engine() -> None:
    """Kubernetes fills in $(NAME) in args and takes $$ for $ (api/core/v1 Container.args)."""
    plan = simple("""vllm serve m/x --hf-overrides '{"a": "$(b) $$ $c"}'""")
    assert container(plan)["args"][2] == '{"a": "$$(b) $$$$ $$c"}'


@pytest.mark.parametrize("value", ["$NAME", "${NAME}/x", "$(cat name)", "`cat name`"])
def test_shell_variables_without_a_value_are_refused(value: str) -> None:
    with pytest.raises(
        ConfigError, match="a shell variable or substitution that the command does not set; replace it with its"
    ):
        render("kubernetes", simple(f"vllm serve m/x --served-model-name '{value}'"))


# --- names and YAML --------------------------------------------------------------------------------------------------------

ODD_NAMES = [
    "a: b", "a\nb", "yes", "0x1", "1e3", "1.0", "~", "null", "2001-01-01", "12:30:45", "{a", "[a", "#a", "a #b", "&a", "*a", "!a", "|", ">",
    "%a", "@a", "`a", "'", '"', "a'b\"c", "\\", " a ", "模型/七", "Ünïcödé", "a\tb", "\u2028", "\x85", "\ufeff", "🦙", "x" * 300, "...", "a\n---\nb", "0o7", "1_000", "=", "<<",
    ".inf", "on", "N", "a:", "?", "? a", "a, b", "=--x", "\x07", "a\n b\n", "\n", "\\n", "a\rb",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_could_break_yaml(name: str) -> None:
    plan = request(command=None, model=name)
    content = document("kubernetes", plan)
    assert content["spec"]["template"]["spec"]["containers"][0]["args"][0] == name.replace("$", "$$")
    query = document("keda", plan)["spec"]["triggers"][0]["metadata"]["query"]
    assert f"model_name={json.dumps(name, ensure_ascii=False)}}}" in query
    check_label("name", plan.label)
    if name in ("a\nb", "\x85", "x" * 300, "\n"):
        validate(content, VERSIONS[-1:])
        assert all(documents(render(name, plan)) for name in YAML_FORMATS if name != "configmap")


@pytest.mark.parametrize("text", ["{\n}\n", "  {}\n", "{}\n\n", "{a\n\tb}\n", "\n{}\n", "{\n---\n}\n", "{\u2028}\n"])
def test_texts_of_several_lines_read_back(text: str) -> None:
    assert documents("\n".join(filled(["a: $a", "b: 1"], {"a": text}))) == [{"a": text, "b": 1}]


@settings(max_examples=60, deadline=None)
@given(name=st.text(min_size=1, max_size=80))
def test_any_text_reads_back(name: str) -> None:
    template = ["# $head", "spec:", "  args: $args  # $text", "  text: $text  # because $text", "last: $last  # $text"]
    values = {"head": [name, "x"], "args": [name, "x", {name: {"a": name}}], "text": name, "last": 1}
    text = "\n".join(filled(template, values))
    assert documents(text) == [{"spec": {"args": values["args"], "text": name}, "last": 1}]
    assert "# \n" not in text


@settings(max_examples=100, deadline=None)
@given(name=st.text(min_size=1, max_size=400))
def test_every_name_gives_a_label(name: str) -> None:
    label = label_from(name)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", label)
    assert len(label) <= 50
    assert label_from(name) == label


def test_labels() -> None:
    assert label_from(LLAMA_70B) == "llama-3-1-70b-instruct"
    assert label_from("/models/Qwen2.5-7B/") == "qwen2-5-7b"
    assert label_from("01-ai/01") == "model-01"
    assert label_from("x" * 300) != label_from("x" * 299 + "y")
    assert label_from("模型") != label_from("模板")


@pytest.mark.parametrize("field", ["name", "namespace", "volume_claim"])
@pytest.mark.parametrize("value", ["", "A", "a_b", "-a", "a-", "a.b", "a" * 64, "a b", "é", "a\nb"])
def test_names_that_kubernetes_refuses(field: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} = .*: must be a DNS-1123 label .*; '[a-z0-9-]+' would do$"):
        request(**{field: value})


def test_a_service_of_knative_starts_with_a_letter() -> None:
    plan = request(name="7b")
    validate(document("kubernetes", plan))
    with pytest.raises(
        ConfigError, match=r"name = '7b': must be a DNS-1035 label .* a letter first.*; 'model-7b' would do"
    ):
        render("knative", plan)


def test_strings_are_quoted_wherever_a_parser_could_doubt_them() -> None:
    """Words that YAML 1.1 (go-yaml, which Kubernetes reads with) or YAML 1.2 takes for something else than text."""
    doubtful = re.compile(
        r"[-+]?(0x[0-9a-f]+|0o?[0-7]+|[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?|\.inf|\.nan)|y|n|yes|no|on|off|true|false|null|~|[0-9]+(:[0-9]+)+",
        re.IGNORECASE,
    )
    texts = [*ODD_NAMES, "Y", "No", "OFF", "True", "+1", "1e+3", ".5", "0b1", "1:2", "NaN", "infinity", "2024-01-01T00:00:00Z"]  # fmt: skip
    tokens = yaml.scan("\n".join(f"- {quoted(text)}" for text in texts), Loader=yaml.SafeLoader)
    plain = [token.value for token in tokens if isinstance(token, yaml.ScalarToken) and token.plain]
    assert [value for value in plain if doubtful.fullmatch(value)] == []


# --- bad input -------------------------------------------------------------------------------------------------------------


def test_unknown_formats() -> None:
    with pytest.raises(UnknownNameError, match="format = 'kubernets': not a known name; did you mean 'kubernetes'"):
        render("kubernets", request())
    for name in (None, 3, [], "x" * 10_000):
        with pytest.raises(StartupModelError):
            render(name, request())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="request = 3: must be a DeploymentRequest"):
        render("json", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"period_s": 0}, "period_s = 0: must be greater than or equal to 1"),
        ({"period_s": 10**18}, "period_s = 1000000000000000000: must be less than or equal to 3600"),
        ({"period_s": 2.5}, "period_s = 2.5: must be a valid integer"),
        ({"period_s": True}, "period_s = True"),
        ({"period_s": math.nan}, "period_s = nan"),
        ({"period_s": "10"}, "period_s = '10'"),
        ({"replicas_min": -1}, "replicas_min = -1"),
        (
            {"replicas_min": 3, "replicas_max": 2},
            "replicas_max = 2: must be at least replicas_min = 3; raise it, or lower that",
        ),
        ({"replicas_max": 0}, "replicas_max = 0"),
        ({"warm_replicas": -1}, "warm_replicas = -1"),
        ({"warm_replicas": 10**18}, "warm_replicas = 1000000000000000000"),
        ({"requests_per_replica": 0}, "requests_per_replica = 0"),
        ({"port": 0}, "port = 0"),
        ({"port": 65536}, "port = 65536"),
        ({"image": "a b"}, "image = 'a b': must be a reference of a container image; such as REGISTRY/NAME:v0.11.0"),
        ({"image": ""}, "image = ''"),
        ({"model": ""}, "model = ''"),
        ({"model": "\ud800"}, "model = "),
        ({"command": 3}, "command = 3: must be a valid string"),
        ({"policy": {"quantile": 2}}, "policy = "),
        ({"prediction": 3}, "prediction = 3"),
        ({"profile": "x"}, "profile = 'x'"),
        ({"quantil": 3}, "quantil: unknown field of DeploymentRequest"),
    ],
)
def test_bad_requests_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        request(**changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ls", "it starts no engine that is known here"),
        ("x" * 70_000, "must be at most 65536 characters"),
        ("", "empty"),
        (SGLANG_COMMAND, "command = 'sglang': the prediction is of vllm; predict the command that is to run"),
        (
            "vllm serve m/x --port 99999",
            "--port = '99999': must be a port from 1 to 65535; correct the command, or give port",
        ),
        ("vllm serve m/x --port x", "--port = 'x': must be a port"),
        ("vllm serve m/x --uds server.sock", "--uds: a server on a Unix socket answers no probe; leave the flag out"),
        ("vllm serve m/x --seed", "--seed: missing, the flag needs a value"),
        ("vllm serve 'm/x", "unbalanced quotes"),
        ("docker run vllm/vllm-openai:v0.14.0@sha256:00 --model m/x --enforce-eager", None),
    ],
)
def test_bad_commands_are_one_line(command: str, message: str | None) -> None:
    plan = DeploymentRequest(prediction=predicted(), command=command)
    if message is None:
        assert render("kubernetes", plan)
        return
    for name in ("kubernetes", "startup-probe", "keda"):
        with pytest.raises(ConfigError) as refused:
            render(name, plan)
        assert message in str(refused.value)
        assert "\n" not in str(refused.value)


def test_an_hpa_keeps_one_replica() -> None:
    with pytest.raises(
        ConfigError, match="replicas_min = 0: must be at least 1 for a HorizontalPodAutoscaler; take keda"
    ):
        render("hpa", request(replicas_min=0))


@settings(max_examples=60, deadline=None)
@given(
    command=st.text(max_size=200) | st.text(max_size=60).map(lambda text: f"vllm serve m/x {text}"),
    model=st.none() | st.text(min_size=1, max_size=50),
    name=st.sampled_from(list(FORMATS)),
)
def test_nothing_else_is_raised(command: str, model: str | None, name: str) -> None:
    with contextlib.suppress(StartupModelError):
        text = render(name, DeploymentRequest(prediction=predicted(), command=command, model=model))
        assert text.endswith("\n")
        assert FORMATS[name].kind != "json" or json.loads(text)
        assert FORMATS[name].kind != "yaml" or documents(text)


def test_every_format_says_what_it_is() -> None:
    plan = request(profile=Profile.reference("l40s-epyc-9354"))
    for name, entry in FORMATS.items():
        assert entry.description
        text = render(name, plan)
        assert text == render(name, plan)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert entry.kind in ("yaml", "json", "env")
        assert Phase.PROVISION.value not in entry.description
