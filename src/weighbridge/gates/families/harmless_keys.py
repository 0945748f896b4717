"""Keys that change nothing of what a model computes, with the reason: a difference in one decides nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from weighbridge.quantities.packing_keys import RUNS, beside_codes

LABEL = "a label"
TENSORS_TELL = "it follows from the tensors, which are compared"
TRAINING = "used in training alone"
CALL = "how a library calls the model, not what the model is"
CODE = (
    "it names code, which another format does not run"  # harmless where one side is of another format, and only there
)
SAMPLING = "how text is sampled, not what the model is"
WRAPPER = "how a library wraps the tokenizer, whose rules and pieces are compared"
# Of config.json, with or without the part of a text model, and of the metadata of an APR file.
OF_MODEL: Mapping[str, str] = {
    **dict.fromkeys(("_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "license"), LABEL),
    **dict.fromkeys(("id2label.*", "label2id.*"), "names of outputs"),
    **dict.fromkeys(("architectures", "auto_map.*"), CODE),
    **dict.fromkeys(("dtype", "torch_dtype", "quantization_config.*", "quantization.*"), TENSORS_TELL),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "embd_pdrop", "attn_pdrop", "resid_pdrop"), TRAINING),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), TRAINING),
    **dict.fromkeys(("embedding_dropout", "residual_dropout", "dropout_rate", "dropout", "resid_dropout"), TRAINING),
    **dict.fromkeys(("classifier_dropout_prob", "summary_first_dropout", "layerdrop", "embd_dropout"), TRAINING),
    **dict.fromkeys(("initializer_range", "initializer_factor", "init_std", "time_step_init_scheme"), TRAINING),
    **dict.fromkeys(("router_aux_loss_coef", "output_router_logits", "router_jitter_noise"), TRAINING),
    **dict.fromkeys(("router_z_loss_coef", "aux_loss_alpha", "seq_aux", "rescale_prenorm_residual"), TRAINING),
    **dict.fromkeys(("use_cache", "output_attentions", "output_hidden_states", "return_dict"), CALL),
    **dict.fromkeys(("_attn_implementation", "attn_implementation", "gradient_checkpointing", "use_mambapy"), CALL),
    **dict.fromkeys(("pretraining_tp", "chunk_size_feed_forward", "use_return_dict", "torchscript"), CALL),
}
HARMLESS: Mapping[str, str] = {
    **{f"{place}:{key}": why for place in ("config.json", "metadata") for key, why in OF_MODEL.items()},
    **{f"config.json:text_config.{key}": why for key, why in OF_MODEL.items()},
    "generation_config.json:transformers_version": LABEL,
    "generation_config.json:_from_model_config": LABEL,
    **dict.fromkeys(
        (
            *(f"generation_config.json:{key}" for key in ("do_sample", "temperature", "top_k", "top_p", "min_p")),
            *(f"generation_config.json:{key}" for key in ("repetition_penalty", "max_length", "max_new_tokens")),
            *(f"generation_config.json:{key}" for key in ("use_cache", "output_attentions", "output_hidden_states")),
        ),
        SAMPLING,
    ),
    **dict.fromkeys(
        (
            *(f"tokenizer_config.json:{key}" for key in ("name_or_path", "tokenizer_class", "processor_class")),
            *(f"tokenizer_config.json:{key}" for key in ("model_max_length", "padding_side", "truncation_side")),
            *(f"tokenizer_config.json:{key}" for key in ("backend", "is_local", "tokenizer_file", "local_files_only")),
            *(f"tokenizer_config.json:{key}" for key in ("special_tokens_map_file", "added_tokens_decoder")),
            "tokenizer_config.json:auto_map.*",
        ),
        WRAPPER,
    ),
    **dict.fromkeys(("tokenizer.json:version", "tokenizer.json:truncation*", "tokenizer.json:padding*"), WRAPPER),
    # GGUF. The type of the file is the tensors' own; a matrix of importance left its traces in them.
    **dict.fromkeys(("general.file_type", "general.quantization_version", "quantize.imatrix.*"), TENSORS_TELL),
    "general.alignment": "where tensors lie, not what they are",
    "split.*": "how a file was cut into parts",
    **dict.fromkeys(
        (
            *(f"general.{key}" for key in ("name", "basename", "finetune", "version", "organization", "author")),
            *(f"general.{key}" for key in ("description", "size_label", "license", "license.*", "url", "repo_url")),
            *(f"general.{key}" for key in ("doi", "uuid", "tags", "languages", "quantized_by", "source.*")),
            *(f"general.{key}" for key in ("base_model.*", "dataset.*", "datasets", "converted_by")),
        ),
        LABEL,
    ),
    "general.sampling.*": SAMPLING,
}


@lru_cache(maxsize=4096)
def harmless(name: str) -> str:
    """Return why a difference in this key decides nothing, or nothing where it decides."""
    if name in HARMLESS:
        return HARMLESS[name]
    return next((why for glob, why in GLOBS.items() if fnmatchcase(name, glob)), "")


PACKING = re.compile(r"config\.json:(?:\w+_config\.)?quantization(?:_config)?\.(.+)")


@lru_cache(maxsize=4096)
def harmless_of_packing(name: str) -> str:
    """Return the same of two files that one method quantised, whose tensors do not tell what becomes of activations."""
    found = PACKING.fullmatch(name)
    if found is None:
        return harmless(name)
    why = beside_codes(found[1]) or "each side's codes are read by its own keys, and compared"
    return "" if why == RUNS else why


GLOBS = {glob: why for glob, why in HARMLESS.items() if "*" in glob}
