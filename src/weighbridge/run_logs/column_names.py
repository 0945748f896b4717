"""What columns are called: the standard name of a logged one, from a map that was given or from what loggers write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ALIASES: Mapping[str, tuple[str, ...]] = {
    "step": ("global_step", "iteration", "iter", "trainer/global_step"),
    "loss": ("train_loss", "training_loss", "train/loss", "loss/train"),
    "lr": ("learning_rate", "train/learning_rate", "lr-AdamW"),
    "grad_norm": ("gradient_norm", "train/grad_norm"),
    "tokens": ("step_tokens", "tokens_in_step"),
    "tokens_seen": ("num_input_tokens_seen", "total_tokens", "tokens_total"),
    "tokens_per_sec": ("tokens_per_second", "tok_per_sec", "throughput_tokens_per_sec"),
    "wall_ms": ("step_ms", "step_time_ms", "wall_time_ms", "iteration_time_ms"),
    "gpu_util_pct": ("gpu_util", "gpu_utilization", "utilization.gpu"),
    "coverage": ("corpus_coverage", "coverage_pct"),
}
STANDARD: Mapping[str, str] = {alias: name for name, aliases in ALIASES.items() for alias in aliases}


def standard_names(logged: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the name in the log by standard name: the given map first, then a column's own name, then its alias.

    A logged column whose own name the given map uses for another is left out.
    """
    remaining = [name for name in logged if name not in given.values()]
    names = {standard: name for standard, name in given.items() if name in set(logged)}
    own = {name for name in remaining if name not in given}
    for name in remaining:
        standard = STANDARD.get(name, name)
        free = standard not in given and standard not in own and standard not in names
        if free:
            names[standard] = name
        elif name in own:
            names[name] = name
    return names
