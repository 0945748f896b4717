"""What the codes mean with which a subject is refused as unreadable; `weighbridge explain CODE` prints them.

Only words: nothing here decides or reads.
"""

from __future__ import annotations

from collections.abc import Mapping

CHECKPOINT_CODES: Mapping[str, str] = {
    "empty-file": "The file has no bytes. Its writer was stopped, or the disk was full: write it again.",
    "subject-changed": "The file was written to between opening and reading it, so what was read is of no one file."
    " Wait for its writer, then measure again.",
    "checkpoint-none": "The directory holds neither model.safetensors.index.json nor a .safetensors file, nor the"
    " .metadata of a distributed checkpoint, which is written when all else is.",
    "checkpoint-ambiguous": "The directory holds several .safetensors files and no index that says what belongs"
    " together. Bind one file, or write the index.",
    "checkpoint-format": "The file is of another known format (another pickle or ZIP, HDF5, GGML)."
    " Save the weights in a format that is read; safetensors is the safest.",
    "remote-extra": "A package that reads URLs of this kind is not installed. pip install 'weighbridge[remote]' brings"
    " http and https; s3 needs s3fs, gs needs gcsfs, and so on, as fsspec names them.",
    "remote-protocol": "fsspec knows no filesystem for this URL, or the URL is several in one ('::').",
    "remote-access": "The server refuses access. Its filesystem reads credentials from the environment or from"
    " fsspec's configuration; in a URL they work too, and are never shown or kept. A signed link may have expired.",
    "remote-timeout": "The server did not answer within a minute. Nothing was judged on what had come by then.",
    "remote-short": "The server gave fewer bytes than were asked for, three times.",
    "remote-ranges": "The server gives a file only whole, never a range of it. Fetch the file, and bind its path.",
    "remote-size": "The server does not tell how large the file is, so its end cannot be checked.",
    "remote-order": "A tensor of more than 16 MiB is not in row-major order, so it would be fetched many times over."
    " Fetch the file, and bind its path.",
    "remote-unreadable": "The server could not be reached or answered with an error, or the connection broke thrice.",
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
    "zip-truncated": "The archive's end record or a member's content is missing: it was not written or fetched whole.",
    "zip-directory": "The archive's directory is not where its end record says, or its entries do not fill it.",
    "zip-header": "A member's own header is missing, or of another member than the directory says.",
    "zip-name": "A member's name is not UTF-8.",
    "zip-twice": "Two members have the same name, so two readers may see two different ones.",
    "zip-compressed": "A member is compressed, so its bytes cannot be looked at in place. torch.save and numpy.savez"
    " store their members; zip tools and numpy.savez_compressed do not.",
    "zip-encrypted": "A member is encrypted.",
    "zip-overlap": "Two members share bytes.",
    "zip-hole": "Bytes between two members belong to none, so no reader would look at them.",
    "zip-size": "A member that must be read whole is larger than any that a checkpoint needs.",
    "zip-checksum": "A member does not have the CRC-32 that the archive gives for it: bits have changed since.",
    "pickle-global": "The pickle names a class or function that no state dictionary needs; loading it in Python could"
    " run code. Here nothing is imported or called. Save only the state_dict().",
    "pickle-call": "The pickle calls, fills or sets what a state dictionary never does.",
    "pickle-opcode": "The pickle has an opcode or protocol that torch.save does not write.",
    "pickle-stack": "The pickle takes from its stack or memo what is not there: it is damaged.",
    "pickle-truncated": "The pickle ends inside a value: it was not written or fetched whole.",
    "pickle-length": "A text has a negative length, or a whole number more than 255 bytes.",
    "pickle-text": "A text in the pickle is not UTF-8.",
    "pickle-size": "The pickle has more opcodes or objects than the largest checkpoints need.",
    "torch-byteorder": "The file was written on a big-endian machine. Load it there, or with PyTorch, and save it again"
    " on a little-endian one.",
    "torch-script": "The archive is a TorchScript program. Save its state_dict() instead.",
    "torch-version": "The file's protocol is none that torch.save writes.",
    "torch-trailing": "Bytes follow the last pickle or storage, which no reader would look at.",
    "torch-truncated": "A storage ends beyond the end of the file, which is not whole.",
    "torch-unread": "A storage in the file belongs to no tensor, so no reader would look at it.",
    "torch-storage": "A tensor looks into a storage that is not there, or a reference to one is malformed.",
    "torch-span": "A tensor reaches beyond its storage, or the storage has another size than its reference says.",
    "torch-tensor": "A tensor is described in a way that torch.save does not, or is no plain stored tensor"
    " (conjugated, negated). Save a contiguous copy.",
    "torch-dtype": "A storage or tensor has a dtype that is not known here.",
    "torch-expanded": "Views show more bytes than the file holds (expand). Save a contiguous copy, or the original.",
    "torch-nested": "Dictionaries and lists are nested more than 64 deep, or one holds itself.",
    "torch-name": "A key of a dictionary is neither text nor number, or the names are longer than any that are needed.",
    "torch-twice": "Two tensors have the same name once the names of nested dictionaries are joined with dots.",
    "dcp-metadata": "The .metadata of a distributed checkpoint does not describe tensors, pieces and items as PyTorch"
    " writes them. Load it with the PyTorch that wrote it, and save it again.",
    "dcp-twice": "A tensor or an item is described twice, so two readers may see two different ones.",
    "dcp-size": "The .metadata is larger than 64 MiB. Save the model's weights alone, or as safetensors.",
    "dcp-shape": "A tensor has more than 32 dimensions, or more elements than can be counted.",
    "dcp-piece": "A piece lies outside its tensor, or the item that should hold it holds another dtype or shape.",
    "dcp-pieces": "The pieces of a tensor cut it into more cells than the largest checkpoints need.",
    "dcp-hole": "Elements of a tensor are in no piece, or bytes of a .distcp file in no item.",
    "dcp-overlap": "Two pieces hold the same element, or two items the same bytes.",
    "dcp-item": "A piece is stored nowhere, or its item is not one tensor that torch.save wrote.",
    "dcp-unread": "An item is stored that is no piece of any tensor, so no reader would look at it.",
    "dcp-path": "An item is said to lie outside the checkpoint's directory: by a path, or by a link that leads out.",
    "dcp-transformed": "An item was compressed or encrypted while it was saved, so it cannot be looked at in place.",
    "dcp-file": "A file that .metadata names is not beside it: the directory was not copied whole.",
    "dcp-truncated": "An item ends beyond the end of its file, which is not whole, or of another save.",
    "dcp-trailing": "Bytes follow the last item or the pickle, which no reader would look at.",
    "apr-version": "The APR version is not 2.",
    "apr-checksum": "The header does not have the CRC-32 that it gives: bits have changed since.",
    "apr-flags": "The file is encrypted, or says that it is column-major.",
    "apr-truncated": "A section, index entry or tensor ends beyond the bytes that there are: the file is not whole.",
    "apr-metadata": "The metadata is no strict JSON object, or is larger than 64 MiB.",
    "apr-count": "More tensors than the index can hold.",
    "apr-name": "A tensor's name is longer than 256 bytes or not UTF-8.",
    "apr-shape": "A tensor has more than eight dimensions.",
    "apr-dtype": "A dtype code is unknown, or of APR's own blocks (AprQ4, AprQ8), or BF16 is written in both"
    " generations' codes.",
    "apr-span": "Shape times dtype is not the size in the index. Another reader's codes (2 for Q4_0) look so too.",
    "apr-alignment": "A tensor does not start at a multiple of 64 bytes.",
    "apr-order": "The index is not sorted by name, so a reader that searches misses tensors.",
    "apr-twice": "A tensor is given twice.",
    "apr-overlap": "Two tensors share bytes.",
    "apr-hole": "Bytes between two tensors belong to none, so no reader would look at them.",
    "apr-trailing": "Bytes between the last tensor and the footer belong to none.",
    "onnx-wire": "The file breaks protobuf's wire format: a field's number or type, or a number of more than 64 bits.",
    "onnx-truncated": "A field, or a tensor in a file beside the model, ends beyond the bytes that there are.",
    "onnx-size": "The model has more fields or initializers than the largest models need.",
    "onnx-depth": "Graphs are nested in nodes more than 16 deep.",
    "onnx-model": "The file holds no graph or no opset_import, so it is not a whole model.",
    "onnx-twice": "A field that may be there once, a key, or a tensor's data is given twice, so two readers may see two"
    " different ones.",
    "onnx-text": "A name or entry is not UTF-8, or longer than 65,536 bytes.",
    "onnx-name": "An initializer has no name, or two have the same.",
    "onnx-dtype": "The dtype is unknown, or has no whole bytes here: STRING, COMPLEX128, integers of 4 or 2 bits.",
    "onnx-shape": "A dimension is negative, there are more than 32, too many elements to count, or half a last byte.",
    "onnx-span": "Shape times dtype is not the number of bytes that are there.",
    "onnx-typed": "The values are in int32_data, int64_data or uint64_data, or in many fields, so they do not lie in"
    " the file as they are. Store them as raw_data; onnx.numpy_helper.from_array does.",
    "onnx-segment": "The initializer is a segment of a larger tensor.",
    "onnx-sparse": "An initializer is sparse; only dense ones are read.",
    "onnx-external": "Data beside the model is not told in plain file name, offset and length, or is told in two ways.",
    "onnx-missing": "A file that should lie beside the model does not. Fetch the whole directory.",
    "onnx-overlap": "Two tensors share some of their bytes, but not all.",
    "npy-header": "The array's header is not NumPy's: mark, version, length, descr, fortran_order and shape.",
    "npy-dtype": "The array is of objects (a pickle), records, texts or dates; or of bytes without a meaning:"
    " numpy.save writes bfloat16 as V2 and 8-bit floats as V1, so that nobody can tell what they were."
    " Save those as safetensors.",
    "npy-byteorder": "The array is big-endian.",
    "npy-shape": "The array has more than 32 dimensions.",
    "npy-span": "Shape times dtype is not the number of bytes behind the header.",
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
    "run-elsewhere": "The run is named by a URL; only checkpoints are read so. Fetch it, and bind its path.",
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
