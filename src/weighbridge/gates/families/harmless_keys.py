"""Keys that change nothing of what a model computes, with the reason: a difference in one decides nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from weighbridge.quantities.checkpoints import RUNS, beside_codes

CODE = "it names code, which another format does not run"  # harmless where one side is of another format alone
# Where keys stand, why they are harmless, and the keys as globs. Those of MODEL stand in config.json, with or without
# the part of a text model, and in the metadata of an APR file; a matrix of importance left its traces in the tensors.
TABLE = f"""
MODEL | a label | _name_or_path name_or_path transformers_version _commit_hash license;
MODEL | names of outputs | id2label.* label2id.*;
MODEL | {CODE} | architectures auto_map.*;
MODEL | it follows from the tensors, which are compared | dtype torch_dtype quantization_config.* quantization.*;
MODEL | used in training alone | attention_dropout hidden_dropout embd_pdrop attn_pdrop resid_pdrop
hidden_dropout_prob attention_probs_dropout_prob classifier_dropout embedding_dropout residual_dropout dropout_rate
dropout resid_dropout classifier_dropout_prob summary_first_dropout layerdrop embd_dropout initializer_range
initializer_factor init_std time_step_init_scheme router_aux_loss_coef output_router_logits router_jitter_noise
router_z_loss_coef aux_loss_alpha seq_aux rescale_prenorm_residual;
MODEL | how a library calls the model, not what the model is | use_cache output_attentions output_hidden_states
return_dict _attn_implementation attn_implementation gradient_checkpointing use_mambapy pretraining_tp
chunk_size_feed_forward use_return_dict torchscript;
generation_config.json: | a label | transformers_version _from_model_config;
generation_config.json: | how text is sampled, not what the model is | do_sample temperature top_k top_p min_p
repetition_penalty max_length max_new_tokens use_cache output_attentions output_hidden_states;
tokenizer_config.json: | how a library wraps the tokenizer, whose rules and pieces are compared | name_or_path
tokenizer_class processor_class model_max_length padding_side truncation_side backend is_local tokenizer_file
local_files_only special_tokens_map_file added_tokens_decoder auto_map.*;
tokenizer.json: | how a library wraps the tokenizer, whose rules and pieces are compared | version truncation*
padding*;
general. | it follows from the tensors, which are compared | file_type quantization_version;
- | it follows from the tensors, which are compared | quantize.imatrix.*;
general. | where tensors lie, not what they are | alignment;
- | how a file was cut into parts | split.*;
general. | a label | name basename finetune version organization author description size_label license license.* url
repo_url doi uuid tags languages quantized_by source.* base_model.* dataset.* datasets converted_by;
general. | how text is sampled, not what the model is | sampling.*
"""
PLACES = {"MODEL": ("config.json:", "metadata:", "config.json:text_config."), "-": ("",)}
HARMLESS: Mapping[str, str] = {
    before + key: why.strip()
    for place, why, keys in (entry.split("|") for entry in TABLE.split(";"))
    for before in PLACES.get(place.strip(), (place.strip(),))
    for key in keys.split()
}
GLOBS = {glob: why for glob, why in HARMLESS.items() if "*" in glob}


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
