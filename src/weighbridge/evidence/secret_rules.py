"""What a secret looks like, by named rule. Every quantifier is bounded, so that no text makes a rule slow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Words that a value may start with where it is a placeholder, not a secret.
_PLACEHOLDER = r"(?!\$|<|\*|\[withheld|%|\{|null\b|none\b|true\b|false\b)"
_ASSIGNED = r"""\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: the pattern runs only where one of the lower-case `hints` stands in the text."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


_PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("private-key", ("private key-----",),
     (r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"
     r"(?:[\s\S]{0,20000}?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z))?")),
    ("aws-key-id", ("akia", "asia"), r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
     r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})"),
    ("huggingface-token", ("hf_",), r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{30,64}(?![A-Za-z0-9_])"),
    ("api-key", ("sk-",), r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,256}"),
    ("google-key", ("aiza",), r"(?<![A-Za-z0-9_])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_])"),
    ("slack-token", ("xox", "hooks.slack.com"),
     r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,255}|hooks\.slack\.com/services/[A-Za-z0-9/]{10,255}"),
    ("wandb-key", ("wandb",),
     r"(?i)wandb[a-z0-9_.-]{0,40}" + _ASSIGNED + r"[0-9a-f]{40}(?![0-9a-f])|wandb_v1_[A-Za-z0-9_]{20,255}"),
    ("web-token", ("eyj",),
     r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}"),
    ("url-credentials", ("://",), r"""(?<=://)[^\s/:@"'\\]{0,256}:(?!\$|<|\*|\[withheld)[^\s/@"'\\]{1,256}@"""),
    ("url-signature", ("sig=", "signature=", "token=", "credential="),
     r"(?i)(?<=[?&])(?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|(?:\w{0,40}_)?token)="
     + _PLACEHOLDER + r"[^\s&#\"'\\<>]{6,8192}"),
    ("bearer-token", ("bearer",),
     r"(?i)(?<![a-z])bearer\s{1,4}(?=[^\s]{0,60}[0-9])[a-z0-9._~+/-]{20,4096}"),
    ("assigned-secret",
     ("password", "passwd", "passphrase", "secret", "api_key", "api-key", "apikey", "access", "auth", "private_key"),
     r"(?i)(?:password|passwd|passphrase|client_?secret|secret_?key|secret_?access_?key|api[_-]?key"
     r"|access[_-]?token|auth[_-]?token|private_?key)" + _ASSIGNED + _PLACEHOLDER + r"""[^\s"'\\,;&}\]]{6,4096}"""),
)  # fmt: skip
RULES = tuple(Rule(name, hints, re.compile(pattern)) for name, hints, pattern in _PATTERNS)


def found(text: str) -> Iterator[Rule]:
    """Yield every rule that a text breaks, never the secret itself."""
    lowered = text.lower()
    for rule in RULES:
        if any(hint in lowered for hint in rule.hints) and rule.pattern.search(text):
            yield rule


def withheld(text: str) -> str:
    """Return a text with `[withheld:RULE]` in the place of every secret."""
    lowered = text.lower()
    for rule in RULES:
        if any(hint in lowered for hint in rule.hints):
            text = rule.pattern.sub(f"[withheld:{rule.name}]", text)
    return text
