"""What the codes mean with which a subject is refused as unreadable; `weighbridge explain CODE` prints them.

Only words: nothing here decides or reads.
"""

from __future__ import annotations

from collections.abc import Mapping

CHECKPOINT_CODES: Mapping[str, str] = {
    "empty-file": "The file has no bytes. Its writer was stopped, or the disk was full: write it again.",
    "subject-changed": "The file was written to between opening and reading it, so what was read is of no one file."
    " Wait for its writer, then measure again.",
    "checkpoint-none": "The directory holds neither model.safetensors.index.json nor a .safetensors file.",
    "checkpoint-ambiguous": "The directory holds several .safetensors files and no index that says what belongs"
    " together. Bind one file, or write the index.",
    "checkpoint-format": "The file is of another known format (a pickle, a ZIP, HDF5, NumPy). Pickles are never"
    " loaded: save the weights as safetensors.",
    "safetensors-header": "The header is no strict JSON object in UTF-8 that gives each tensor once, with dtype,"
    " shape and data_offsets; or it is larger than 16 MiB."
    " Two readers may see two different tensors under a doubled name.",
    "safetensors-truncated": "The header or a tensor ends beyond the end of the file, which is not whole.",
    "safetensors-trailing": "Bytes follow the last tensor, which no reader would look at.",
    "safetensors-hole": "Bytes between two tensors belong to none, so no reader would look at them.",
    "safetensors-overlap": "Two tensors share bytes.",
    "safetensors-span": "Shape times dtype is not the number of bytes that the offsets span.",
    "safetensors-dtype": "The dtype is none of the 22 that safetensors defines.",
    "gguf-version": "The GGUF version is neither 2 nor 3, or the file is big-endian.",
    "gguf-count": "A count of tensors, keys or array elements cannot fit into the bytes left, or is beyond reason.",
    "gguf-length": "A key or name is longer than 65,536 bytes.",
    "gguf-truncated": "A value or tensor ends beyond the end of the file: it was not written or fetched whole.",
    "gguf-depth": "Arrays are nested more than four deep.",
    "gguf-type": "A value or tensor has a type id that GGUF does not define, or no longer.",
    "gguf-text": "A key or tensor name is not UTF-8.",
    "gguf-twice": "A key or tensor is given twice.",
    "gguf-shape": "A tensor has more than eight dimensions, too many elements to count, or rows of broken blocks.",
    "gguf-alignment": "general.alignment is not a 32-bit power of two.",
    "gguf-hole": "A tensor does not start at the first aligned byte after the one before it.",
    "gguf-overlap": "A tensor starts before the one before it ends.",
    "gguf-trailing": "Bytes follow the last tensor, which no reader would look at.",
    "index": "The index of a sharded checkpoint is no strict JSON with a weight_map, or names a shard by more than a"
    " file name.",
    "shard-missing": "A shard that the index names is not beside it.",
    "shard-wrong": "A tensor is not in the shard that the index names for it, or not in the index.",
    "tensor-twice": "A tensor is in two shards, so two readers may see two different ones.",
}

RUN_CODES: Mapping[str, str] = {
    "not-found": "There is no file or directory of that name.",
    "not-readable": "The operating system refuses to open the log.",
    "not-a-file": "The name is that of a FIFO, socket or device. Only regular files are read, so nothing hangs.",
    "not-a-run": "The directory holds no steps.jsonl, so it is no run directory.",
    "run-schema": "run.json names another schema than the one that is read, or none.",
    "empty-file": "The log has no bytes.",
    "no-rows": "The log has no row, so no step can be looked at.",
    "not-utf8": "The log is not UTF-8 text.",
    "line-too-long": "A line is longer than 1 MiB, which no row of a log is.",
    "too-large": "The log has more bytes, rows, columns or cells than are read; nothing was cut off silently.",
    "column-name": "A column's name is no line of printable characters, or too long for one.",
    "log-syntax": "A line or a file is not of its form; only a last line without its end may be torn.",
}

EXECUTED_CODES: Mapping[str, str] = {
    "command-form": "The command cannot be split into words: a quote is open.",
    "no-command": "The command has no words.",
    "command-not-found": "The command's first word is no program that can be run here.",
    "factory-spec": "The target names no factory; one is module:function or path/to/file.py:function.",
    "no-file": "There is no file where the factory should be.",
    "no-factory": "The module or file has no function of that name.",
    "factory-raised": "The factory, or importing it, raised; `--debug` shows the traceback.",
    "not-a-forward": "What the factory returned is no forward subject: see spec/forward-subject.md.",
    "forward-raised": "The forward pass raised; `--debug` shows the traceback.",
    "point-id": "The id of a capture point does not say its state, as `L0.attn.q.post_bias` does.",
    "point-shape": "A capture point holds something other than float64 values [sequences, tokens, channels].",
    "tap": "A tap names no place in a module; it is a path, path:in or path:out, with [from:to] for channels.",
    "no-submodule": "A tap names a submodule that the module does not have.",
    "captured-twice": "One forward pass reached a capture point twice, so there is no one value to compare.",
}

SUBJECT_CODES: Mapping[str, Mapping[str, str]] = {
    "a checkpoint that cannot be read": CHECKPOINT_CODES,
    "a run that cannot be read": RUN_CODES,
    "a command or model that cannot be used": EXECUTED_CODES,
}
