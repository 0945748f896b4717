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
    "telegram-url": _of("https://api.telegram.org/bo" + "t123456789:", MIXED[:35]),
    "google-key-id": _of('"private_key' + '_id": "', HEX[:40]),
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
# Who, which machine, and paths inside names: a pseudonym stands for each; a contract may say them all the same.
PERSONAL = {
    "mail": "anne.miller@research.example.org",
    "private address": "192.168.17.4",
    "own network": "10.20.30.40",
    "public address": "203.0.113.7",
    "address with a port": "8.8.4.4:29500",
    "ip6": "fe80::1ff:fe23:4567:890a",
    "whole ip6": "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    "mac": "00:1a:2b:3c:4d:5e",
    "dashed mac": "00-1A-2B-3C-4D-5E",
    "gpu": "GPU-5f1e2d3c-aaaa-bbbb-cccc-1234567890ab",
    "mig": "MIG-5f1e2d3c-aaaa-bbbb-cccc-1234567890ab",
    "home of": "~anne/ckpt",
    "user": "~anne",
    "in-a-name": "encoder./home/anne/x",
    "behind-a-name": "layers/home/anne/ckpt/w",
    "dashed": "w-/mnt/anne/x",
}
