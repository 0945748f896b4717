"""What the rules over a run's columns catch with their defaults, and which healthy runs they leave alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.gates.runs import column

from weighbridge.cli.explain import _gate
from weighbridge.core.limits import fields, read
from weighbridge.core.model import Basis, Measurement, Outcome, Rows, Series, Verdict
from weighbridge.gates import KINDS
from weighbridge.quantities.facts import Fact

LOSS = [2.0 + 2.16 * 0.96**step for step in range(120)]


def noisy(values: Sequence[float], share: float = 0.02) -> list[float]:
    draw = random.Random(7)
    return [value * (1 + share * draw.uniform(-1, 1)) for value in values]


def judged(
    name: str, values: Sequence[float], *, judged_as: str = "loss", other: Sequence[float] = (), **limits: Any
) -> Verdict:
    """Return the verdict of a rule over one column of a run whose vocabulary is 64."""
    kind = KINDS[name]
    evidence = evidence_of(values, judged_as, other)
    return kind.judge({need: evidence[need] for need in kind.needs}, read(kind.limits, limits))


def evidence_of(values: Sequence[float], judged_as: str, other: Sequence[float] = ()) -> dict[str, Measurement]:
    rows = Rows("column", (column(judged_as),))
    facts = Rows("name", (Fact(name="vocab", value=64, basis=Basis.REPORTED, contradicted_by=()),))
    series = {"samples": (judged_as, values), "other": ("loss", other)}
    return {
        need: Measurement(
            quantity="step_series", value=Series(tuple(range(len(given))), tuple(given)), by="test", at=at, examined=1,
            total=1,
        )
        for need, (at, given) in series.items()
    } | {
        "columns": Measurement(quantity="step_columns", value=rows, by="test", examined=1, total=1),
        "facts": Measurement(quantity="facts", value=facts, by="test", examined=1, total=1),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["first-loss", "beyond-chance", "diverging", "loss-spike"])
def test_a_loss_that_falls_is_no_offence(name: str) -> None:
    long = [2.0 + 2.16 * 0.98**step for step in range(300)]
    assert judged(name, noisy(long)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("name", "fault", "code"),
    [
        ("first-loss", lambda loss: 512 * loss, "off"),
        ("first-loss", lambda loss: -loss, "off"),
        ("beyond-chance", lambda loss: 4.16 - 0.001 * (4.16 - loss), "not-learned"),
        ("beyond-chance", lambda loss: 100 * loss, "not-learned"),
    ],
)
def test_a_loss_that_no_model_has_is_found(name: str, fault: Callable[[float], float], code: str) -> None:
    assert judged(name, noisy([fault(one) for one in LOSS], 0.0001)).code == code


def test_a_run_that_diverges_is_found_where_it_does() -> None:
    verdict = judged("diverging", noisy([*LOSS[:60], *(LOSS[59] + 0.1 * step for step in range(60))]))
    assert verdict.code == "diverged"


def test_a_fine_tune_whose_loss_moves_near_zero_does_not_diverge() -> None:
    assert judged("diverging", noisy([*LOSS[:60], *([0.003] * 30), *([0.008] * 30)])).outcome is Outcome.PASS


def test_a_norm_that_grows_a_tenth_a_step_is_found_though_it_never_jumps() -> None:
    norms = noisy([0.5 * 1.1**step for step in range(120)], 0.1)
    assert judged("gradient-jump", norms, judged_as="grad_norm").outcome is Outcome.PASS
    assert judged("gradient-growth", norms, judged_as="grad_norm").code == "grew"


@pytest.mark.parametrize("name", ["gradient-jump", "gradient-growth"])
def test_a_norm_that_grows_a_third_a_step_is_found(name: str) -> None:
    norms = noisy([0.5] * 60 + [0.5 * 1.3**step for step in range(40)], 0.1)
    assert judged(name, norms, judged_as="grad_norm").outcome is Outcome.FAIL


def test_a_norm_that_grows_while_a_model_begins_to_learn_is_no_offence() -> None:
    norms = noisy([0.5 + 2.5 * step / 120 for step in range(120)], 0.2)
    assert judged("gradient-growth", norms, judged_as="grad_norm").outcome is Outcome.PASS


def test_losses_that_are_rounded_near_zero_do_not_spike() -> None:
    rounded = [4.0] * 100 + [0.0001 * (step % 13 == 0) for step in range(200)]
    assert judged("loss-spike", rounded).outcome is Outcome.PASS
    assert judged("loss-spike", [*rounded, 0.05]).code == "spikes"


def schedule(name: str, steps: int = 100) -> Sequence[float]:
    """Return the learning rates that torch gives for a schedule with ten steps of warm-up."""
    if name == "cosine":
        falls = [0.5 * (1 + math.cos(math.pi * (step - 10) / (steps - 10))) for step in range(10, steps)]
    else:
        falls = [(steps - step) / (steps - 10) if name == "linear" else 1.0 for step in range(10, steps)]
    return [3e-4 * share for share in (*(step / 10 for step in range(10)), *falls)]


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
def test_a_learning_rate_on_its_schedule_passes_and_on_another_fails(name: str) -> None:
    for other in ("constant", "linear", "cosine"):
        verdict = judged(
            "declared-schedule", schedule(other), judged_as="lr", schedule=name, peak=3e-4, total_steps=100,
            warmup_steps=10,
        )  # fmt: skip
        assert (verdict.outcome is Outcome.PASS) == (other == name)


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
def test_a_schedule_that_is_stepped_twice_is_through_too_early(name: str) -> None:
    once = schedule(name)
    assert judged("spent-schedule", once, judged_as="lr").outcome is Outcome.PASS
    twice = [max(rate, 3e-5) for rate in (*once[::2], *[once[-1]] * 50)]
    assert judged("spent-schedule", twice, judged_as="lr").code == ("pass" if name == "constant" else "spent")


def test_a_rate_that_is_held_and_falls_at_the_end_or_is_set_down_in_steps_is_not_spent() -> None:
    for healthy in ([3e-4] * 80 + [3e-4 - 1e-5 * at for at in range(20)], [3e-4] * 40 + [3e-5] * 60):
        assert judged("spent-schedule", healthy, judged_as="lr").outcome is Outcome.PASS


@pytest.mark.parametrize(("kind", "column", "values", "limits", "beyond"), [
    ("series-bound", "loss", [1.0, 5.0, 9.0, 5.0, 1.0], {"at_most": 4.0}, [1, 2, 3]),
    ("series-bound", "loss", [1.0, 5.0, 9.0, 5.0, 1.0], {"at_most": 4.0, "steps": [2, 4]}, [2, 3]),
    ("series-bound", "loss", [1.0, 5.0, 9.0, 5.0, 1.0], {"at_most": 1.5, "relative_to": "previous"}, []),
    ("gradient-jump", "grad_norm", [*[1.0, 1.1] * 15, 11.0, 30.0, 1.0], {"min_samples": 2}, [30, 31]),
    ("idle-rate", "lr", [0.1, *[0.0] * 22], {}, [20, 21, 22]),
])  # fmt: skip
def test_a_kind_tells_which_samples_are_beyond_its_bound_by_themselves(
    kind: str, column: str, values: Sequence[float], limits: dict[str, Any], beyond: list[int]
) -> None:
    given = read(KINDS[kind].limits, limits)
    evidence = {need: evidence_of(values, column)[need] for need in KINDS[kind].needed(limits)}
    assert [step for step, broken in KINDS[kind].by_sample(evidence, given) if broken] == beyond


def test_an_evaluation_that_rises_is_found_only_while_the_loss_falls() -> None:
    losses = [2.0 - 0.1 * step for step in range(12)]
    rising = [1.5, 1.3, 1.2, 1.1, 1.2, 1.4, 1.6, 1.9, 2.2, 2.6, 3.0, 3.3]
    assert judged("validation-parting", rising, judged_as="val_loss", other=losses).code == "parted"
    assert judged("validation-parting", rising, judged_as="val_loss", other=rising).outcome is Outcome.PASS
    slower = [2.0 - 0.05 * step for step in range(12)]
    assert judged("validation-parting", slower, judged_as="val_loss", other=losses).outcome is Outcome.PASS
    steep = [4.0 * 0.7**step for step in range(12)]  # the last ones' median lies above the last, which is the best
    assert judged("validation-parting", steep, judged_as="val_loss", other=steep).outcome is Outcome.PASS


def test_norms_that_are_nearly_all_clipped_are_found() -> None:
    norms = noisy([1.5] * 80 + [0.8] * 40, 0.1)
    clipped = [min(norm, 0.99999976) for norm in norms]
    assert judged("clip-share", clipped, judged_as="grad_norm", clip=1.0).code == "clipped"
    assert judged("clip-share", clipped[60:], judged_as="grad_norm", clip=1.0, min_samples=60).outcome is Outcome.PASS


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.figure is not None])
def test_what_explain_prints_to_copy_are_the_defaults_of_a_rule(name: str) -> None:
    defaults = [
        f"{one.key}: {one.default}".lower()
        for one in fields(KINDS[name].limits)
        if not one.required and one.default is not None
    ]
    printed = [line.strip().partition("  #")[0] for line in _gate(KINDS[name])]
    keys = {one.partition(":")[0] for one in defaults}
    assert not [line for line in printed if line.partition(":")[0] in keys and line.lower() not in defaults]
