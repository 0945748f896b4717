"""What a model knows by heart: probes that were sealed before the first step, gone on with at steps of the schedule.

They are looked at on a copy of the model that shares its parameters, greedily, without gradients, and random numbers
are given back: training finds everything as it was.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from weighbridge.core import WeighbridgeError, grouped, read_regular_file, sha256, unique
from weighbridge.diagnosis.fixed_batch import evaluated
from weighbridge.quantities.runs import is_scheduled
from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.passes.probes import copied, random_numbers_kept

TRAINED, HELD_OUT = "train", "held-out"
MAX_BYTES, MAX_PROBES, MAX_WRITTEN, AT_ONCE = 16 << 20, 1_000, 256, 32  # of the file; tokens gone on with; rows
LOOKS_AHEAD = 0.01  # of the logits' range: what later tokens change of earlier ones beyond rounding
LARGEST = 80.0  # nats, whose perplexity is still a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The file of probes, a JSON object a line, and what makes ids of its texts where it has any."""

    path: str | Path
    encode: Callable[[str], Sequence[int]] | None = None


class Probe(NamedTuple):
    """The beginning of a text, and how it really goes on."""

    of: str
    prompt: tuple[int, ...]
    rest: tuple[int, ...]


class Answer(NamedTuple):
    """What the model made of one probe."""

    probe: Probe
    written: tuple[int, ...]
    loss: float  # of the true rest, a token on average


class Memorized(Channel):
    """Measure the probes in the steps of the schedule, and at a checkpoint."""

    columns = (
        *("probe_loss", "continuation_exact", "continuation_overlap", "continuation_sd", "probes_missed"),
        *("unseen_ppl", "held_out_exact", "held_out_overlap", "probe_gap", "distinct_bigrams"),
    )
    every_step = True

    def __init__(self, watched: Watched, asked: Probes, first_step: int, log: Callable[..., None]) -> None:
        super().__init__(watched)
        self._asked, self._first, self._log, self._probes = asked, first_step, log, tuple[Probe, ...]()
        self._longest = 0
        self.due = False  # in this step, whatever the schedule
        self.looked = self._ahead = False

    def sealed(self) -> str:
        """Read the probes once, and return the digest of their file, or raise ValueError with the line that is none."""
        data = _bytes(self._asked.path)
        lines = enumerate(data.decode("utf-8").splitlines(), 1)
        found = tuple(_probe(line, number, self._asked.encode) for number, line in lines if line.strip())
        if not 0 < len(found) <= MAX_PROBES:
            raise ValueError(f"{len(found)} probes; there must be 1 to {MAX_PROBES}")
        self._probes = found
        return sha256(data)

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Learn how long a row the model is trained on."""
        ids = kwargs.get("input_ids", args[0] if args else None)
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            self._longest = max(self._longest, ids.shape[1])

    def row(self) -> Mapping[str, Cell]:
        """Measure where that is due."""
        if not self._probes or not (self.due or is_scheduled(self.watched.step + self._first)):
            return {}
        self.due, answers, model = False, list[Answer](), copied(self.watched)
        refused = self._unfit() if model else "no copy of the model can be made: it is compiled, or spread over ranks"
        if model and not refused:
            answers = self._answers(model)
            refused = "" if answers else "the model looks ahead, or gives no logits of each token"
        self.look(refused)
        return figures(answers)

    def look(self, refused: str = "") -> None:
        """Note what the file is now, which is to be what was sealed."""
        try:
            now = sha256(_bytes(self._asked.path))
        except WeighbridgeError:
            now = ""
        self.looked = True
        self._log("probes", sha256=now, probes=len(self._probes), **({"refused": refused} if refused else {}))

    def _unfit(self) -> str:
        """Return why the model cannot be asked; on a device an id or a place out of its range would end the process."""
        model = self.watched.bare()
        config = getattr(model, "config", None)
        rows = (one.num_embeddings for one in model.modules() if isinstance(one, torch.nn.Embedding))
        known = [getattr(config, "vocab_size", None), self.watched.vocab]
        vocabulary = min(filter(None, known), default=max(rows, default=0))
        context = getattr(config, "max_position_embeddings", None) or self._longest
        longest = max(len(one.prompt) + len(one.rest) - 1 for one in self._probes)  # the last token is only asked for
        largest = max(max(*one.prompt, *one.rest) for one in self._probes)
        wrong = {
            f"a probe takes {longest} tokens, and the model {context}": longest > context,
            f"a probe has the token {largest}, and the model knows {vocabulary}": largest >= vocabulary,
            "the model has an encoder and a decoder": getattr(config, "is_encoder_decoder", False),
            "the model is on several devices": len({one.device for one in model.parameters()}) > 1,
        }
        return next((why for why, so in wrong.items() if so), "")

    def _answers(self, model: torch.nn.Module) -> list[Answer]:
        """Return what the model makes of all probes; none where it looks ahead."""
        if self._ahead or self.watched.causal is False:
            return []
        device, answers = next(model.parameters()).device, list[Answer]()
        alike = grouped(((len(one.prompt), len(one.rest)), one) for one in self._probes)
        with random_numbers_kept(), torch.autocast(device.type, enabled=False):
            torch.manual_seed(0)
            for _, group in sorted(alike.items()):
                for part in (group[at : at + AT_ONCE] for at in range(0, len(group), AT_ONCE)):
                    some = _asked(model, part, device)
                    self._ahead |= not some
                    answers += some
        return [] if self._ahead else answers


def _probe(line: str, number: int, encode: Callable[[str], Sequence[int]] | None) -> Probe:
    try:
        said = json.loads(line, object_pairs_hook=unique)
        of, *texts = (said.pop(name) for name in ("class", "prompt", "continuation"))
        prompt, rest = (_ids(encode(one) if isinstance(one, str) and encode else one) for one in texts)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise ValueError(f"line {number} is no probe: {problem}") from None
    if said or of not in (TRAINED, HELD_OUT) or len(rest) > MAX_WRITTEN:
        what = f"a class of {TRAINED} or {HELD_OUT}, a prompt and a continuation of at most {MAX_WRITTEN} tokens"
        raise ValueError(f"line {number} is no probe: it has {what}")
    return Probe(of, prompt, rest)


def _ids(given: Any) -> tuple[int, ...]:
    ids = tuple(int(one) if type(one) is not bool and one == int(one) else -1 for one in given if one is not None)
    if isinstance(given, str) or not ids or min(ids) < 0:
        raise ValueError("a text is a list of ids of 0 and more, or `encode` makes one of it")
    return ids


def _asked(model: torch.nn.Module, probes: Sequence[Probe], device: torch.device) -> list[Answer]:
    """Return what the model makes of probes of one length; nothing where its logits are not of what comes next."""
    prompt = torch.tensor([one.prompt for one in probes], device=device)
    rest = torch.tensor([one.rest for one in probes], device=device)
    whole, begun = prompt.shape[1] + rest.shape[1] - 1, prompt.shape[1]
    at_once = evaluated(model, {0: torch.cat([prompt, rest[:, :-1]], 1)})
    first = evaluated(model, {0: prompt})
    if at_once is None or first is None or at_once.shape[:2] != (len(probes), whole) or first.shape[:2] != prompt.shape:
        return []
    if float((at_once[:, :begun] - first).abs().max()) > LOOKS_AHEAD * float(first.max() - first.min()):
        return []
    chances = at_once[:, begun - 1 :].float().log_softmax(-1)
    losses = -chances.gather(-1, rest[..., None])[..., 0].double().mean(1)
    ids, after = prompt, first
    for _ in range(rest.shape[1]):
        ids = torch.cat([ids, after[:, -1].argmax(-1, keepdim=True)], 1)
        if ids.shape[1] <= whole and (following := evaluated(model, {0: ids})) is not None:
            after = following
    return [Answer(*one) for one in zip(probes, map(tuple, ids[:, begun:].tolist()), losses.tolist(), strict=True)]


def figures(answers: Sequence[Answer]) -> dict[str, Cell]:
    """Return the columns; what there is no probe for is left out."""
    found: dict[str, Cell] = {}
    tokens: dict[str, float] = {}
    for of, prefix in ((TRAINED, "continuation"), (HELD_OUT, "held_out")):
        if not (some := [one for one in answers if one.probe.of == of]):
            continue
        loss, share = fmean(one.loss for one in some), fmean(one.written == one.probe.rest for one in some)
        both = ((Counter(one.written) & Counter(one.probe.rest), one.probe) for one in some)
        tokens[of] = fmean(same.total() / len(probe.rest) for same, probe in both)  # wherever they were written
        found |= {f"{prefix}_exact": share, f"{prefix}_overlap": tokens[of]}
        of_trained = {"probe_loss": loss, "probes_missed": 1 - share}
        of_trained["continuation_sd"] = math.sqrt(share * (1 - share) / len(some))
        found |= of_trained if of == TRAINED else {"unseen_ppl": math.exp(min(loss, LARGEST))}
    if len(tokens) == 2:
        found["probe_gap"] = tokens[TRAINED] - tokens[HELD_OUT]
    if several := [one.written for one in answers if len(one.written) > 1]:
        found["distinct_bigrams"] = fmean(len({*itertools.pairwise(one)}) / (len(one) - 1) for one in several)
    return found


def _bytes(path: str | Path) -> bytes:
    return read_regular_file(Path(path), MAX_BYTES, WeighbridgeError)
