"""Secrets of every kind, as they are written, each with the part that must never be repeated.

Put together here, so that no scanner of repositories takes this file for a leak.
"""

from __future__ import annotations

HEX = "0123456789abcdef" * 4
MIXED = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC9dE1fG3hI5"


def _of(prefix: str, rest: str) -> tuple[str, str]:
    return prefix + rest, rest


PLANTED: dict[str, tuple[str, str]] = {
    "aws": _of("AK" + "IA", "Q3EGR7XTAB5Z6WMN"),
    "aws-secret": _of("aws_secret_access" + "_key=", MIXED[:40]),
    "github": _of("gh" + "p_", MIXED[:36]),
    "github-fine": _of("github" + "_pat_", MIXED[:40]),
    "gitlab": _of("gl" + "pat-", MIXED[:20]),
    "gitlab-runner": _of("gl" + "rt-", MIXED[:22]),
    "hugging-face": _of("h" + "f_", MIXED[:34]),
    "openai": _of("s" + "k-proj-", MIXED[:40]),
    "anthropic": _of("s" + "k-ant-api03-", MIXED[:40]),
    "google": _of("AI" + "za", MIXED[:35]),
    "google-oauth": _of("ya" + "29.", MIXED[:40]),
    "slack": _of("xo" + "xb-", "1234567890-abcdefghij"),
    "slack-app": _of("xa" + "pp-", "1-A0123456789-" + MIXED[:20]),
    "slack-hook": _of("hooks." + "slack.com/services/", "T0123/B0123/" + MIXED[:20]),
    "discord-hook": _of("discord.com/api" + "/webhooks/", "123456789012345678/" + MIXED[:40]),
    "wandb": _of("WANDB" + "_API_KEY=", HEX[:40]),
    "npm": _of("np" + "m_", MIXED[:36]),
    "pypi": _of("py" + "pi-", "AgEIcHlwaS5vcmc" + MIXED),
    "stripe": _of("sk" + "_live_", MIXED[:24]),
    "sendgrid": _of("S" + "G.", MIXED[:22] + "." + MIXED[:43]),
    "azure-storage": _of("Account" + "Key=", MIXED[:50] + "=="),
    "azure-bus": _of("SharedAccess" + "Key=", MIXED[:43] + "="),
    "azure-sas": _of("https://x.blob.example/c?sv=1&si" + "g=", MIXED[:40]),
    "twilio": _of("S" + "K", HEX[:32]),
    "telegram": _of("123456789" + ":AA", MIXED[:33]),
    "mailchimp": _of(HEX[:31], "e-u" + "s12"),
    "digitalocean": _of("do" + "p_v1_", HEX[:64]),
    "databricks": _of("da" + "pi", HEX[:32]),
    "replicate": _of("r" + "8_", MIXED[:37]),
    "vault": _of("hv" + "s.", MIXED[:24]),
    "docker": _of("dckr" + "_pat_", MIXED[:27]),
    "web-token": _of("ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.", MIXED[:20]),
    "bearer": _of("Authorization: Bea" + "rer ", MIXED[:26]),
    "basic": _of("Authorization: Ba" + "sic ", "YW5uZTpzM2NyM3Q="),
    "token": _of("tok" + "en=", MIXED[:16]),
    "neptune": _of("NEPTUNE_API_TO" + "KEN=", MIXED[:40]),
    "kaggle": _of("KAGGLE" + "_KEY=", HEX[:32]),
    "kaggle-file": _of('{"user' + 'name":"anne","key":"', HEX[:32]),
    "password": _of("db_pass" + "word=", "correct-horse"),
    "pwd": _of("Server=x;P" + "wd=", "correct-horse"),
    "secret": _of("client_sec" + "ret: ", MIXED[:20]),
    "mysql": _of("mysql -u root -" + "p", "c0rrect-horse"),
    "curl": _of("curl -u anne" + ":", "c0rrect-horse"),
    "url": _of("postgres://anne" + ":", "c0rrect-horse@db.example/x"),
    "private-key": _of("-----BEGIN OPENSSH PRIV" + "ATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAA"),
}
PATHS = {
    "data": "/data1/anne/llama/model.safetensors",
    "projects": "/projects/secret-lab/run-7",
    "fsx": "/fsx/team-blue/ckpt",
    "scratch": "/scratch2/anne/x",
    "home": "/home/anne/x",
}
