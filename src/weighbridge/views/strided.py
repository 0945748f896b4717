"""Read a tensor whose elements do not lie in row-major order, in that order, a window at a time.

Copies what is asked for and nothing else; takes constant memory however far apart the elements lie.
"""

from __future__ import annotations

from collections.abc import Iterator

from weighbridge.views.mapped_file import WINDOW, MappedFile
from weighbridge.views.tensor import Tensor


def windows(file: MappedFile, tensor: Tensor, size: int) -> Iterator[memoryview]:
    """Walk over a strided tensor's bytes in row-major order, in steps of `size`, giving back what was touched.

    Raises:
        SubjectError: `subject-changed`, when the file is no longer the one that was opened.
    """
    taken = WINDOW
    for start in range(0, tensor.nbytes, size):
        if taken >= WINDOW:
            file.require_unchanged()
            file.release(*tensor.extent)
            taken = 0
        yield read(file, tensor, start, min(start + size, tensor.nbytes))
        taken += size
    file.release(*tensor.extent)
    file.require_unchanged()


def read(file: MappedFile, tensor: Tensor, start: int, stop: int) -> memoryview:
    """Gather bytes `start` to `stop` of a strided tensor in row-major order."""
    import numpy as np

    assert tensor.strides is not None
    size, strides = tensor.unit[1], tensor.strides
    spread = np.ndarray(
        strides.shape,
        f"<u{size}",
        file.read(*tensor.extent),
        strides=tuple(step * size for step in strides.steps),
    )
    first, last = start // size, -(-stop // size)
    gathered = spread.flat[strides.first + first : strides.first + last]
    return memoryview(gathered.tobytes())[start - first * size : stop - first * size]
