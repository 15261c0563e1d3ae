"""What is taken for a secret, and what is not: the same for logs, commands, variables, manifests and records."""

from __future__ import annotations

import time

import pytest

from startup_model.engines import all_engines
from startup_model.engines.arguments import shape_of
from startup_model.secrets import (
    HIDDEN,
    holds_secret,
    is_secret_name,
    public_address,
    redact_command,
    redact_environment,
    redact_text,
    redact_words,
    redactor,
    secret_values,
    without_credentials,
)

SECRET = "S3CR3T99"  # noqa: S105  it is looked for

LEAKS = [
    "'api_key': '{}'", "api_key='{}'", '"api_key": "{}"', 'api_key: Some("{}")', "aws_secret_access_key={}", "secret_key: {}", "'authorization': 'Bearer {}'",
    "{{'Authorization': 'Basic {}'}}", "hfApiKey='{}'", "myAccessToken: '{}'", "--api-key  {}", "--api-key '{}'", '--api-key="{}"', "--api_key={}", "--hf_token {}",
    "['--api-key', '{}']", "[('HF_TOKEN','{}')]", "hf_token={}", "cfg.token={}", "HF_TOKEN: {}", "Authorization: Basic {}", "Bearer {}", "redis://:{}@h",
    "https://{}@github.com/x", "https://bob:p@{}@h", "https://bob:p/{}@h", "?token={}", "&sig={}", "X-Amz-Signature={}", "x-api-key: {}", "env.HF_TOKEN={}",
    "'api_key': ['{}']", "HF_TOKEN={} vllm serve", "password=1234{}", "{{\\\"api_key\\\": \\\"{}\\\"}}", "hf_{}aaaa", "ghp_{}aaaa", "sk-{}aaaa", "me:{}@host",
    "user:p:{}@h:80", "curl -H 'Authorization: {}'", "AWS_KEY={} x", "SOME_AUTH={}", "VLLM_S3_CRED={}", "--tls-key {}", "--pass={}", "--env=HF_TOKEN={}", "https://h/m?key={}",
    "github_pat_{}aaaa", "glpat-{}aaaa", "nvapi-{}aaaa", "xoxb-{}aaaa", "AIza{}aaaa", "AKIA{}AAAAAAAA", "eyJ{}.eyJ{}.aaaa", "admin_token='{}'", "endpoint_token={}",
    "-----BEGIN RSA PRIVATE KEY-----\nMII{}\n-----END", "Cookie: {}", "b'api_key': b'{}'", "token: 'unclosed {}", "hf_" + "a" * 200 + "{}", "Proxy-Authorization: Basic {}", "ssl_key={}",
]  # fmt: skip
HARMLESS = [
    "max_num_batched_tokens=8192", "tokenizer='org/x'", "'skip_tokenizer_init': False", "GPU KV cache size: 94,135 tokens", "eos_token_id=5", "image_token: '<image>'",
    "Please set a HF_TOKEN to enable higher rate limits", "#tokens: 139814", "api_key=None", "http://0.0.0.0:8000", "num_speculative_tokens: 5", "hf_token=''",
    "python:3.11@sha256:0123", "10:00:00@x", "git@github.com:o/r", "vllm/vllm-openai:v0.9.0@sha256:ab", "a: b@c", "git+https://github.com/o/r@v1", "hf_overrides={}",
    "gs://asia-southeast1-bucket/model", "Qwen/Qwen3-8B", "VLLM_USE_AUTH=1", "HF_HUB_ENABLE_HF_TRANSFER=1", "import hf_transfer", "KeyError: 'architectures'", "missing key: lm_head",
    "'pass_config': {'a': 1}", "ssl_keyfile='/tls/key'", "expandable_segments:True", "0|1", "PWD=/root", "--max-num-batched-tokens 512", "task-sk", "passing 5 of 7", "sha256:0123@",
    "TOKENIZERS_PARALLELISM=false", "PATH=/usr/bin", "MONKEY=1", "HF_HUB_OFFLINE=1", "a token of a text", "stop_token_ids=[1, 2]", "maxtokens=abc", "oci://reg:5000/x@sha256:ab", "key=value",
]  # fmt: skip


@pytest.mark.parametrize("form", LEAKS)
@pytest.mark.parametrize("around", ["{}", "x = {}", "INFO 01-02 03:04:05 [a.py:1] config: model='m', {}, tp=1", "(Errno 2) " + "y" * 300 + "\n\t{}\r\n"])  # fmt: skip
def test_secrets_are_taken_out_wherever_they_stand(form: str, around: str) -> None:
    leak = form.replace("{}", SECRET).replace("{{", "{").replace("}}", "}")
    found = redact_text(around.replace("{}", leak))
    assert SECRET not in found
    assert HIDDEN in found
    assert redact_text(found) == found
    assert holds_secret(leak)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_sounds_or_looks_secret_stays(text: str) -> None:
    assert redact_text(text) == text
    assert redact_text(f"INFO x {text} y") == f"INFO x {text} y"


def test_what_stands_around_a_secret_stays() -> None:
    assert redact_text("a=1, api_key='x y', b=2") == "a=1, api_key='***', b=2"
    assert (
        redact_text("HF_TOKEN=x vllm serve m --api-key k --port 80")
        == "HF_TOKEN=*** vllm serve m --api-key *** --port 80"
    )
    assert redact_text("s3://a:b@bucket/m?X-Amz-Signature=x&y=1#z") == "s3://***@bucket/m?X-Amz-Signature=***&y=1#z"
    assert (
        redact_text("'headers': 'Authorization: Bearer x', 'n': 1") == "'headers': 'Authorization: Bearer ***', 'n': 1"
    )


@pytest.mark.parametrize(
    ("name", "value", "short", "expected"),
    [
        ("--api-key", None, True, True),
        ("apiKey", "k", False, True),
        ("password", "1234", False, True),
        ("VLLM_KEY", "abc", True, True),
        ("VLLM_PASS", "abc", True, True),
        ("SGLANG_PWD", "abc", True, True),
        ("TORCH_AUTH", "abc", True, True),
        ("VLLM_S3_CRED", "abc", True, True),
        ("GITHUB_PAT", "abc", True, True),
        ("--some-password", "x", True, True),
        ("HF_HUB_TOKEN", "hf_x", True, True),
        ("minio_token", "x", False, True),
        ("SAS_SIG", "x", True, True),
        ("VLLM_USE_AUTH", "1", True, False),
        ("VLLM_KEY", "auto", True, False),
        ("api_key", "", True, False),
        ("api_key", "'None'", True, False),
        ("key", "abc", False, False),
        ("pass_config", "{}", False, False),
        ("hf_token", "17", True, False),
        ("--pad-token", "x", True, False),
        ("--num-speculative-tokens", "5", True, False),
        ("--tokenizer-mode", "x", True, False),
        ("--image-token-id", "x", True, False),
        ("HF_HOME", "x", True, False),
        ("PWD", "/root", True, False),
        ("OLDPWD", "/root", True, False),
        ("COMPATIBLE", "x", True, False),
        ("MONKEYS", "x", True, False),
    ],
)
def test_names(name: str, value: str | None, short: bool, expected: bool) -> None:
    assert is_secret_name(name, value, short=short) is expected


def test_flags_of_the_engines_that_hold_secrets() -> None:
    flags = {
        flag
        for engine in all_engines().values()
        for flag in shape_of(engine).names
        if flag not in shape_of(engine).boolean
    }
    assert {flag for flag in flags if is_secret_name(flag)} == {
        "--admin-api-key", "--api-key", "--hf-token", "--ssl-keyfile-password",
    }  # fmt: skip


WORDS = [
    *("--api-key S3CR3T99", "--api-key=S3CR3T99", "--api_key S3CR3T99 S3CR3T99", "--api-key -S3CR3T99 S3CR3T99", "--hf-token S3CR3T99"),
    *("-e HF_TOKEN=S3CR3T99", "--env=HF_TOKEN=S3CR3T99", "AWS_KEY=S3CR3T99", "me:S3CR3T99@host", "http://me:S3CR3T99@h/x", "sk-S3CR3T99abcdef"),
    *("--some-auth S3CR3T99", '{"token":"S3CR3T99"}', "--x=https://h/m?sig=S3CR3T99"),
]  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_words_of_commands(words: str) -> None:
    command = f"docker run {words} --dtype half"
    shown = redact_words(command.split())
    assert SECRET not in "".join(shown)
    assert shown[:2] + shown[-2:] == ["docker", "run", "--dtype", "half"]
    for text in (
        f"vllm serve 'm {words}",
        f"bash {words}\0",
        f"{words} " * 2_000,
        "x" * 390 + f" {words}",
        f"a {words.replace('=', '=a ')}",
    ):
        assert SECRET not in redact_command(text)
        assert len(redact_command(text)) <= 400
    assert SECRET not in redact_command(f'curl -H "Authorization: {SECRET} {SECRET}')


def test_harmless_words_are_shown() -> None:
    command = "vllm serve m --max-num-batched-tokens 8192 --tokenizer m/y --skip-tokenizer-init --ssl-keyfile /tls/key --image-token-id 7 --dtype=half -tp 2"
    assert redact_words(command.split()) == command.split()
    assert redact_command(command) == command
    assert redact_words(["vllm", "serve", "m", "--api-key", "k", "--dtype", "half"]) == [
        "vllm",
        "serve",
        "m",
        "--api-key",
        "***",
        "--dtype",
        "half",
    ]
    assert redact_words(["--api-key"]) == ["--api-key"]


def test_environments() -> None:
    kept = {
        "VLLM_USE_AUTH": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_CPU_OMP_THREADS_BIND": "0|1", "TOKENIZERS_PARALLELISM": "false", "HF_HOME": "/h",
    }  # fmt: skip
    secret = {
        "VLLM_API_KEY": "abc", "VLLM_X": "hf_abcdefgh12345678", "NCCL_A": "sk-abcdefgh12345678", "VLLM_HTTP": "user:pass@h", "VLLM_Y": "password=abc",
        "VLLM_Z": '{"token": "abc"}', "CUDA_X": "github_pat_abcdefgh1234", "VLLM_URL": "https://user:x@h/x", "DATABASE": "postgres://me:x@host/x",
    }  # fmt: skip
    assert redact_environment(kept | secret) == kept


def test_values_that_a_command_was_given_are_hidden_wherever_they_stand() -> None:
    words = [
        "vllm",
        "serve",
        "m",
        "--api-key",
        "first",
        "second",
        "--port",
        "80",
        "--hf-token=plainword",
        "--pass",
        "abc",
    ]
    environment = {"VLLM_S3_CRED": "alpha", "HF_TOKEN": "beta/gamma", "SSH_AUTH_SOCK": "/etc", "SOME_AUTH": "1", "HOME": "/home/me"}  # fmt: skip
    assert set(secret_values(words, environment)) == {"first", "second", "plainword", "alpha", "beta/gamma"}
    assert secret_values([], {"KEY": "x" * 5_000}) == ()
    redact = redactor(words, environment)
    assert redact("key first, second; plainword alpha beta/gamma 80") == "key ***, ***; *** *** *** 80"
    assert redactor(["vllm", "serve", "m"], {})("api_key=abc of m") == "api_key=*** of m"


def test_addresses() -> None:
    address = "https://me:pw@host/org/model-x?token=abcdef#part"
    assert public_address(address) == without_credentials(address) == "https://host/org/model-x"
    assert (public_address("/m/hf_abcdefghijk"), without_credentials("/m/hf_abcdefghijk")) == (
        "/m/hidden",
        "/m/hf_abcdefghijk",
    )
    assert public_address("org/what?") == "org/what?"


@pytest.mark.parametrize(
    "piece",
    [
        "a", "-", "--a-key ", "api_key='", 'api_key="x', "token=", "api_key=\\\\\\'", "://", "://a:", "a:b", "@", "a:b@", "?", "?a", "&sig=", "eyJa", "eyJa.", "-----BEGIN", "-----BEGIN A-----",
        "hf_", "Bearer ", "Authorization: ", "KEY=", "_", ".", "Some(", "\\", "'", "aA", "max_token=", " \t", "AKIA", "é", "\ud800",
    ],
)  # fmt: skip
def test_hostile_text_takes_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        begin = time.perf_counter()
        redact_text(text), redact_command(text), is_secret_name(text, text), public_address(text)
        return time.perf_counter() - begin

    assert seconds(200_000) < max(1.0, 30 * min(seconds(20_000) for _ in range(2)))
