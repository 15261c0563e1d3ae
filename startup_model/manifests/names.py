"""Names that Kubernetes accepts: made from a model's name, or checked where they are given."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from startup_model.errors import ConfigError

__all__ = ["check_image", "check_label", "check_service_label", "label_from"]

LONGEST_MADE = 50
"""Characters of a made name: suffixes of pods, revisions and Secrets still fit into the 63 of a label."""

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}")
_DIGEST_LENGTH = 8


def label_from(name: str) -> str:
    """A DNS label from the name of a model: the same for the same name, starting with a letter, at most 50 characters.

    The last part of the name in lower case with hyphens for everything else. Where it is cut or loses letters, a digest of the whole name keeps names apart.
    """
    last = name[:1000].rstrip("/").rsplit("/", 1)[-1]
    text = re.sub(r"[^a-z0-9]+", "-", unicodedata.normalize("NFKD", last).lower()).strip("-")
    if not text[:1].isalpha():
        text = f"model-{text}".rstrip("-")
    if len(text) > LONGEST_MADE or not last.isascii() or text == "model":
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGEST_LENGTH]
        text = f"{text[: LONGEST_MADE - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"
    return text


def check_label(field: str, value: str) -> str:
    """``value`` when it is a DNS-1123 label. Raises ConfigError with one that is."""
    if not _LABEL.fullmatch(value):
        raise ConfigError(
            field, value, "no DNS-1123 label (a-z, 0-9 and - within, at most 63)", f"{label_from(value)!r} would do"
        )
    return value


def check_service_label(field: str, value: str) -> str:
    """``value`` when a Service can have it as its name (DNS-1035): a label that starts with a letter. Raises ConfigError."""
    if not value[:1].isalpha():
        raise ConfigError(field, value, "the name of a Service starts with a letter", f"{label_from(value)!r} would do")
    return check_label(field, value)


def check_image(value: str) -> str:
    """``value`` when it can be a container image. Raises ConfigError."""
    if not _IMAGE.fullmatch(value):
        raise ConfigError("image", value, "no reference of a container image", "such as vllm/vllm-openai:v0.11.0")
    return value
