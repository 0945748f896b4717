from __future__ import annotations

import hashlib
import re
import re._parser as sre  # type: ignore[import-not-found]
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.evidence import drafts

from weighbridge.core.canonical import dumps
from weighbridge.core.errors import BundleError
from weighbridge.core.model import CanaryResult, Measurement, Rows
from weighbridge.core.pseudonym import keyed
from weighbridge.evaluation.runner import EvaluationSession, as_sealed
from weighbridge.evidence.redact import (
    ABSOLUTE,
    ADDRESS,
    Redactor,
    host_pseudonym,
    own_key,
    redact_json,
    redactor_here,
    rules,
    scan,
)

KEY = b"k" * 32
ADA = Redactor(
    key=KEY,
    paths=(("/home/ada/project", "${RUN}"), ("/home/ada", "${HOME}")),
    names=(("trainbox-07", "host-111111111111"), ("ada", "user-222222222222")),
)
DIGITS = "0123456789abcdef" * 4

# Put together here, so that no scanner of repositories takes this file for a leak.
SECRETS = {
    "aws-key-id": "AK" + "IA" + "Q3EGR7XTAB5Z6WMN",
    "github-token": "gh" + "p_" + "a1B2" * 9,
    "huggingface-token": "h" + "f_" + "aB3d" * 9,
    "api-key": "s" + "k-ant-" + "api03-aB3dE5fG7hI9jK1lM3",
    "google-key": "AI" + "za" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY",
    "slack-token": "xo" + "xb-" + "1234567890-abcdefghij",
    "wandb-key": "WANDB" + "_API_KEY=" + DIGITS[:40],
    "web-token": "ey" + "JhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "dBjftJeZ4CVPmB92K27u",
    "url-credentials": "https" + "://ci-bot:" + "s3cr3tpassw0rd" + "@example.org/repo",
    "bearer-token": "Authorization: Bea" + "rer " + "abcdef0123456789abcdef0123",
    "assigned-secret": "db_pass" + "word = '" + "correct-horse'",
    "private-key": "-----BEGIN RSA PRIV" + "ATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIV" + "ATE KEY-----",
}


@each("rule", SECRETS)
@each("around", ["{}", "before {} after", '{{"argv":["{}"]}}', "# {}\n"])
def test_a_planted_secret_is_found_by_name_and_taken_out(rule: str, around: str) -> None:
    text = around.format(SECRETS[rule])
    assert scan(text.encode(), ADA) in (rule, "assigned-secret")
    clean = ADA.text(text)
    assert scan(clean.encode(), ADA) is None
    assert "[withheld:" in clean


@each("rule", SECRETS)
def test_two_secrets_stay_two_and_a_guess_without_the_key_finds_neither(rule: str) -> None:
    secret = SECRETS[rule]
    start, stop = next(one for one in rules() if one.name == rule).pattern.search(secret).span()  # type: ignore[union-attr]
    middle = (start + stop) // 2
    other = f"{secret[:middle]}{'8' if secret[middle] == '7' else '7'}{secret[middle + 1 :]}"
    names = {re.findall(r"\[withheld:[a-z-]+-[0-9a-f]{12}\]", ADA.text(text))[0] for text in (secret, other, secret)}
    assert len(names) == 2
    elsewhere = Redactor(key=b"other" * 8)
    assert elsewhere.text(secret) != ADA.text(secret)
    assert elsewhere.text(ADA.text(secret)) == ADA.text(secret)


@each("rule", SECRETS)
def test_a_secret_inside_sealed_json_is_found(rule: str) -> None:
    assert scan(dumps({"why": SECRETS[rule], "name": "x"}), ADA) is not None


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("loaded /home/ada/project/runs/a/run.json", "loaded ${RUN}/runs/a/run.json"),
        ("-I/home/ada/include", "-I${HOME}/include"),
        ("/home/ada", "${HOME}"),
        ("/home/adalbert/x.bin", "${ELSEWHERE}/x.bin"),
        ("file:///mnt/models/falcon.gguf", "file://${ELSEWHERE}/falcon.gguf"),
        ("at /tmp/pytest-of-ada/x.safetensors:12", "at ${ELSEWHERE}/x.safetensors:12"),
        (r"C:\Users\Ada\model.gguf", "${ELSEWHERE}/model.gguf"),
        ("ada@trainbox-07", "user-222222222222@host-111111111111"),
        ("adam and nevada, ada_scale", "adam and nevada, ada_scale"),
    ],
)
def test_paths_and_names_get_their_words(text: str, clean: str) -> None:
    shown = ADA.text(text)
    assert re.sub(r"/dir-[0-9a-f]{12}", "", shown) == clean
    assert scan(shown.encode(), ADA) is None


def test_an_address_is_taken_out_of_a_log_and_a_version_is_left_elsewhere() -> None:
    assert ADA.text("cudnn 9.1.0.70") == "cudnn 9.1.0.70"
    assert ADA.log("from 10.1.2.3:8080") == f"from {keyed('ip', '10.1.2.3', KEY)}:8080"


# --- No false alarms --------------------------------------------------------------------------------------------------

TENSORS = [
    f"{stem}.{layer}.{leaf}"
    for stem in ("model.layers", "transformer.h", "blk", "encoder.layer", "mask-decoder.transformer")
    for layer in (0, 11, 127)
    for leaf in (
        "self_attn.q_proj.weight",
        "attn_qkv.bias",
        "mlp.gate_up_proj.weight_scale_inv",
        "post_attention_layernorm.weight",
        "ffn_gate_exps.weight",
        "token_embd.weight",
        "bearer_norm.weight",
        "secret_keeper.weight",
    )
]
HONEST = [
    "/model/layers.0/self_attn/MatMul_output_0",
    "params/Dense_0/kernel",
    "/dev/nvidia0",
    "/proc/self/maps",
    "2026-04-26T12:00:00.000Z",
    "torch 2.13.0+cu124, driver 550.54.15, cudnn 9.1.0.70",
    "bos_token: <|begin_of_text|>",
    "tokens_per_step: 2048",
    "eos_token_id=151643",
    "max_tokens: 131072",
    "tokenizer.ggml.add_bos_token = true",
    "password: ${PASSWORD}",
    "api_key: null",
    "secret-found contract.yaml (aws-key-id)",
    "task-classification-model-xl-2024",
    "nvidia-curand-cu12==10.3.5.147, cuda 10.1.0.243, v9.1.0.70",
    "import@falcon.gguf is of source@v1.2",
    "at ~5 ms, a::b::c, 12:30:45, 2 ~ 3",
    "https://wiki.example.org/home/team/page",
    "params/data/kernel, ./data/x, ../home/y and /shared/MatMul",
    "sk-learn",
    "hf_quantizer",
    "https://huggingface.co/Qwen/Qwen2-0.5B/resolve/main/model.safetensors",
    "git@github.com:example/project.git",
    "spec https://in-toto.io/Statement/v1",
    "user-222222222222 on host-111111111111 with [withheld:api-key]",
    "${RUN}/runs/a ${HOME}/x ${ELSEWHERE}/y",
    "loss 10.8374 at step 20..49, 264.7412 ms < 500 ms",
    "0x1.921fb54442d18p+1 -> 7.5625",
]


@each("text", HONEST + TENSORS)
def test_honest_text_is_left_as_it_is(text: str) -> None:
    assert ADA.text(text) == text
    assert scan(text.encode(), ADA) is None
    assert scan(dumps({"value": text, text: 1}), ADA) is None


@given(st.binary(max_size=64))
def test_a_digest_is_no_secret_in_any_form(data: bytes) -> None:
    for digest in (hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest(), hashlib.sha512(data).hexdigest()):
        for text in (digest, f"sha256:{digest}", f'{{"commit":"{digest}","digest":"{digest}"}}', digest.upper()):
            assert ADA.text(text) == text
            assert scan(text.encode(), ADA) is None


PAGE = (Path(__file__).parents[2] / "spec" / "quantities.md").read_text(encoding="utf-8")
FIELDS = sorted({*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE), "token", "secret"})


@given(st.lists(st.floats(), max_size=64), st.sampled_from(FIELDS), st.floats())
def test_sealed_numbers_are_no_secrets(values: list[float], field: str, value: float) -> None:
    assert scan(dumps({"values": values, field: value}), ADA) is None
    assert scan(dumps({field: value, "z": [{field: value}]}), ADA) is None


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = ADA.text(text)
    assert ADA.text(once) == once


def repeats(parsed: Any) -> list[int]:
    """List the upper bounds of every repetition in a parsed pattern."""
    found = []
    for item in parsed:
        if isinstance(item, tuple) and len(item) == 3 and str(item[0]).endswith("REPEAT"):
            found.append(item[1])
        elif isinstance(item, tuple) and str(item[0]).endswith("REPEAT"):
            found += [int(item[1][1]), *repeats(item[1][2])]
        elif isinstance(item, (tuple, list, sre.SubPattern)):
            found += repeats(item)
    return found


@each("pattern", [rule.pattern for rule in rules()] + [ABSOLUTE, ADDRESS])
def test_every_repetition_of_every_rule_is_bounded(pattern: re.Pattern[str]) -> None:
    bounds = repeats(sre.parse(pattern.pattern))
    assert bounds
    assert max(bounds) <= 20_000


def test_the_bound_check_sees_an_unbounded_repetition() -> None:
    assert max(repeats(sre.parse(r"(?:a|(b[0-9]*))x"))) > 20_000


# --- Values and keys --------------------------------------------------------------------------------------------------


def test_every_text_in_json_is_redacted_keys_included() -> None:
    value = {"/home/ada/a": ["/home/ada/b", 1, None, {"x": "ada"}]}
    assert redact_json(value, ADA) == {"${HOME}/a": ["${HOME}/b", 1, None, {"x": "user-222222222222"}]}


def test_two_keys_that_become_one_are_refused() -> None:
    with pytest.raises(BundleError, match="redaction-collides"):
        redact_json({f"https://host/a?part={part}": 1 for part in "ab"}, ADA)
    assert len(redact_json({f"ghp_{letter * 36}": 1 for letter in "ab"}, ADA)) == 2
    assert len(redact_json({"/mnt/a/x": 1, "/mnt/b/x": 2}, ADA)) == 2


def test_a_measurement_is_redacted_before_it_is_judged() -> None:
    item = drafts.pairs(drafts.pair("/home/ada/model.layer"))
    clean: Any = as_sealed(item, ADA)
    assert isinstance(clean, Measurement)
    assert isinstance(clean.value, Rows)
    assert clean.value.places() == ("${HOME}/model.layer",)


def test_a_series_passes_through_redaction_bit_for_bit() -> None:
    item: Any = drafts.series()
    clean: Any = as_sealed(item, ADA)
    assert clean.value.value.tobytes() == item.value.value.tobytes()


def test_a_name_written_in_json_s_own_escapes_is_still_found() -> None:
    zoe = Redactor(key=KEY, names=(("zoë", "user-333333333333"),))
    assert scan(dumps({"by": "zoë"}), zoe) is not None
    assert scan(dumps({"by": zoe.text("zoë")}), zoe) is None


# --- Pseudonyms -------------------------------------------------------------------------------------------------------


@pytest.fixture
def key_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "weighbridge" / "pseudonym.key"


def test_the_key_is_made_once_in_the_state_folder_and_readable_by_its_owner_alone(key_in: Path) -> None:
    key = own_key()
    assert len(key) == 32
    assert stat.S_IMODE(key_in.stat().st_mode) == 0o600
    assert own_key() == key


def test_a_spoiled_key_is_an_error_with_a_remedy(key_in: Path) -> None:
    own_key()
    key_in.write_text("not hexadecimal")
    with pytest.raises(BundleError, match="pseudonym-key is not a readable file of hexadecimal digits"):
        own_key()


def test_where_no_key_can_be_kept_one_lasts_as_long_as_the_process(key_in: Path) -> None:
    key_in.parent.write_text("a file where the folder would be")
    key = own_key()
    assert (len(key), own_key(), key_in.parent.read_text()) == (32, key, "a file where the folder would be")


def test_a_pseudonym_is_the_same_under_one_key_and_another_under_another() -> None:
    assert keyed("host", "trainbox-07", KEY) == keyed("host", "trainbox-07", KEY)
    assert keyed("host", "trainbox-07", KEY) != keyed("host", "trainbox-07", b"x" * 32)
    assert keyed("host", "ada", KEY) != keyed("user", "ada", KEY)
    assert re.fullmatch(r"host-[0-9a-f]{12}", host_pseudonym(KEY))


def test_this_machine_s_redactor_knows_home_run_host_and_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "trainbox-07.example.org")
    monkeypatch.setattr("getpass.getuser", lambda: "adalovelace")
    home = tmp_path / "home"
    redactor = redactor_here(KEY, run=home / "project", home=home)
    text = f"{home}/project/runs/a by adalovelace on trainbox-07 in {home}/x"
    user, host = keyed("user", "adalovelace", KEY), keyed("host", "trainbox-07", KEY)
    assert redactor.text(text) == f"${{RUN}}/runs/a by {user} on {host} in ${{HOME}}/x"


def test_the_folder_of_whatever_was_named_is_taken_out_wherever_it_is(tmp_path: Path) -> None:
    run = tmp_path / "project"
    words = ["verify", "--subject", "import=/pool/team/falcon/import.gguf", f"--evidence={run}/store/x", "a/b.yaml"]
    redactor = redactor_here(KEY, run=run, home=tmp_path / "home", named=words)
    folder = keyed("dir", "/pool/team/falcon", KEY)
    assert redactor.text("import=/pool/team/falcon/import.gguf") == f"import=${{ELSEWHERE}}/{folder}/import.gguf"
    assert redactor.text(f"{run}/store/x/y") == "${RUN}/store/x/y"
    assert redactor.text("/pool/team/falcons a/b.yaml") == "/pool/team/falcons a/b.yaml"
    assert scan(b"path: /pool/team/falcon/x.gguf", redactor) is not None


@pytest.mark.parametrize(
    ("host", "user"), [("localhost", "root"), ("gpu", "max"), ("Workstation", "median"), ("12345", "")]
)
def test_a_name_that_machines_share_or_contracts_use_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, user: str
) -> None:
    monkeypatch.setattr("platform.node", lambda: host)
    monkeypatch.setattr("getpass.getuser", lambda: user)
    assert redactor_here(KEY, run=tmp_path).names == ()


def test_two_values_stay_two(tmp_path: Path) -> None:
    redactor = redactor_here(b"k" * 32, run=tmp_path, named=("/data1/a/m.gguf", "/data1/b/m.gguf"))
    for one, other in (("/opt/gelu/act.py", "/opt/relu/act.py"), ("/data1/a/m.gguf", "/data1/b/m.gguf")):
        shown = redactor.text(one), redactor.text(other)
        assert shown[0] != shown[1]
        assert all(text.startswith("${ELSEWHERE}/dir-") for text in shown)
        assert redactor.text(shown[0]) == shown[0]


def test_where_a_canary_lay_is_redacted_with_all_that_is_sealed() -> None:
    contract = drafts.contract()
    session = EvaluationSession(contract=contract, bound=(), on={gate.id: () for gate in contract.gates})
    printed = "/home/ada/project/w"
    session.canaries["x"] = CanaryResult(name="one flipped bit", place=printed, applied=False, seen=False, why=printed)
    (sealed,) = session.judged(ADA).canaries.values()
    assert (sealed.place, sealed.why) == ("${RUN}/w", "${RUN}/w")
