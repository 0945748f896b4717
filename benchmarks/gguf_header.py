"""Read the header of a GGUF file with a large vocabulary: ours against gguf.GGUFReader, as a ratio in one run.

    python benchmarks/gguf_header.py [--tokens 152000] [--rounds 3]

The file is made by gguf's own writer: so many tokens with their scores and types, twice as many merges, two tensors.
Both read it in one process after their imports, in turn; figures are medians of CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def write(path: Path, tokens: int) -> None:
    """Write a model's header with a vocabulary."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    names = [f"token-{index}" for index in range(tokens)]
    writer.add_token_list(names)
    writer.add_token_scores([float(index) for index in range(tokens)])
    writer.add_token_types([1] * tokens)
    writer.add_token_merges([f"{left} {right}" for left in names for right in ("a", "b")])
    for name in ("token_embd.weight", "output.weight"):
        writer.add_tensor(name, np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def timed(read: Callable[[], int]) -> float:
    """Time one reading, which must find both tensors."""
    began = time.process_time()
    found = read()
    taken = time.process_time() - began
    assert found == 2
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=152_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    import gguf

    from weighbridge.views.checkpoint import open_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        write(path, chosen.tokens)
        size = path.stat().st_size
        ours, theirs = [], []
        for _ in range(chosen.rounds):
            ours.append(timed(lambda: len(open_checkpoint(path).tensors)))
            theirs.append(timed(lambda: len(gguf.GGUFReader(path).tensors)))
    found = statistics.median(ours), statistics.median(theirs)
    print(f"header of a GGUF with {chosen.tokens} tokens, {size / (1 << 20):.1f} MiB: {found[0]:.4f} s, ", end="")
    print(f"gguf.GGUFReader {found[1]:.3f} s, {found[1] / found[0]:.0f} x as long")


if __name__ == "__main__":
    main()
