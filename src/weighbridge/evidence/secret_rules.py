"""The forms of secrets, as services publish them; every repetition is bounded, so that no text makes a search slow."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Words that a value may start with where it is a placeholder, not a secret.
_PLACEHOLDER = r"(?!\$|<|\*|\[withheld|%|\{|null\b|none\b|true\b|false\b)"
_ASSIGNED = r"""\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?"""
_VALUE = r"""[^\s"'\\,;&}\]]"""
_NUMBER = r"""(?![+-]?\d{1,320}(?:\.\d{0,320})?(?:[eE][+-]?\d{1,4})?(?:[\s"'\\,;&}\]]|\Z))"""
_START, _END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A rule: its pattern is compiled and runs only where one of the lower-case `hints` stands in the text."""

    name: str
    hints: tuple[str, ...]
    form: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of its form, which `re` keeps."""
        return re.compile(self.form)


_GITLAB = ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-")
# Service, the prefixes of its tokens in their own letter case, and what follows them.
_TOKENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("gitlab-token", (*_GITLAB, "GR1348941"), r"[A-Za-z0-9_.-]{20,300}"),
    ("npm-token", ("npm_",), r"[A-Za-z0-9]{36,64}"),
    ("pypi-token", ("pypi-",), r"AgE[A-Za-z0-9_-]{40,1024}"),
    ("stripe-key", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"), r"[A-Za-z0-9]{16,256}"),
    ("sendgrid-key", ("SG.",), r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    ("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{64}"),
    ("databricks-token", ("dapi",), r"[0-9a-f]{32}(?:-\d)?"),
    ("google-token", ("ya29.", "GOCSPX-", "1//0"), r"[A-Za-z0-9_-]{20,1024}"),
    ("slack-app-token", ("xapp-", "xoxe."), r"[A-Za-z0-9.-]{10,255}"),
    ("replicate-token", ("r8_",), r"[A-Za-z0-9]{32,64}"),
    ("groq-key", ("gsk_",), r"[A-Za-z0-9]{40,64}"),
    ("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{32}"),
    ("vault-token", ("hvs.", "hvb."), r"[A-Za-z0-9_-]{20,300}"),
    ("docker-token", ("dckr_pat_",), r"[A-Za-z0-9_-]{20,64}"),
    ("square-token", ("sq0atp-", "sq0csp-"), r"[A-Za-z0-9_-]{20,64}"),
    ("age-key", ("AGE-SECRET-KEY-1",), r"[A-Za-z0-9]{50,64}"),
    ("newrelic-key", ("NRAK-",), r"[A-Za-z0-9]{20,40}"),
    ("grafana-token", ("glsa_", "glc_"), r"[A-Za-z0-9_=+/-]{30,400}"),
    ("linear-key", ("lin_api_",), r"[A-Za-z0-9]{32,64}"),
    ("postman-key", ("PMAK-",), r"[0-9a-f]{24}-[0-9a-f]{34}"),
    ("sentry-token", ("sntrys_", "sntryu_"), r"[A-Za-z0-9_=+/-]{40,400}"),
)

_FORMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("private-key", ("private key-----", "private key block-----"),
     (r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
     r"(?:[\s\S]{0,20000}?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))?")),
    ("aws-key-id", ("akia", "asia"), r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
     r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})"),
    ("huggingface-token", ("hf_",), r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{30,64}(?![A-Za-z0-9_])"),
    ("api-key", ("sk-",), r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,256}"),
    ("google-key", ("aiza",), r"(?<![A-Za-z0-9_])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_])"),
    ("slack-token", ("xox", "hooks.slack.com"),
     r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,255}|hooks\.slack\.com/services/[A-Za-z0-9/]{10,255}"),
    ("webhook", ("/api/webhooks/", "webhook.office.com/"),
     r"(?:/api/webhooks/\d{10,24}/[A-Za-z0-9_-]{20,128}|webhook\.office\.com/[A-Za-z0-9@/._-]{20,512})"),
    ("twilio-id", ("ac", "sk"), r"(?<![A-Za-z0-9])(?:AC|SK)(?=[a-f]{0,31}[0-9])[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("telegram-token", (":aa",), r"(?<![A-Za-z0-9])\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("mailchimp-key", ("-us",), r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])"),
    ("azure-key", ("accountkey=", "sharedaccesskey="),
     r"(?i)(?:account|sharedaccess)key=" + _PLACEHOLDER + r"[A-Za-z0-9+/]{20,256}={0,2}"),
    ("kaggle-key", ("kaggle", "username"),
     r"(?i)kaggle[a-z_.-]{0,20}key" + _ASSIGNED + r"[0-9a-f]{32}(?![0-9a-f])"
     r"|(?<=username)\\?\"\s{0,4}:\s{0,4}\\?\"[^\"\\]{1,64}\\?\",\s{0,4}\\?\"key\\?\"\s{0,4}:\s{0,4}\\?\"[0-9a-f]{32}"),
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
    ("basic-auth", ("basic ",),
     r"(?i)(?:authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?)basic\s{1,4}[a-z0-9+/]{6,4096}={0,2}"),
    ("command-secret", ("mysql", "mariadb", "curl", "wget", "sshpass", "docker", "redis-cli"),
     r"(?:mysql|mariadb|mysqldump|sshpass)[^\n\"']{0,200}?\s-p" + _PLACEHOLDER + r"[^\s\"'-][^\s\"']{3,256}"
     r"|(?:curl|wget)[^\n\"']{0,200}?\s(?:-u|--user)[ =]" + _PLACEHOLDER + r"[^\s:\"']{1,128}:[^\s\"']{3,256}"
     r"|redis-cli[^\n\"']{0,200}?\s-a\s{1,4}" + _PLACEHOLDER + r"[^\s\"']{4,256}"),
    ("assigned-secret",
     ("password", "passwd", "passphrase", "passcode", "pwd", "secret", "api_key", "api-key", "apikey", "access", "auth",
      "private_key", "credential", "client_key"),
     r"(?i)(?:password|passwd|passphrase|passcode|(?<![a-z])pwd|client_?secret|secret_?key|secret_?access_?key"
     r"|api[_-]?(?:key|secret|token)|access[_-]?(?:token|key)|auth[_-]?(?:token|key)|private_?key|client_?key"
     r"|credentials?)" + _ASSIGNED + _PLACEHOLDER + _VALUE + r"{6,4096}"),
    # `token` and `secret` are words of this field, too: the value must look made, of letters and digits, and no number.
    ("assigned-token", ("token", "secret", "_pass"),
     r"(?i)(?<![a-z0-9_-])(?!(?:bos|eos|pad|unk|sep|cls|mask)_token)(?:[a-z0-9]{1,40}[_-]){0,6}(?:token|secret|(?<=_)pass)"
     + _ASSIGNED + _PLACEHOLDER + _NUMBER
     + rf"(?={_VALUE}{{0,200}}[0-9])(?={_VALUE}{{0,200}}[a-z])[a-z0-9+/=_.~-]{{10,4096}}"),
)  # fmt: skip

RULES = (
    *(
        SecretRule(name, tuple(map(str.lower, starts)), f"{_START}(?:{'|'.join(map(re.escape, starts))}){rest}{_END}")
        for name, starts, rest in _TOKENS
    ),
    *(SecretRule(*form) for form in _FORMS),
)
