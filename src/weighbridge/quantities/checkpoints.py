"""What is measured of a checkpoint beside its tensors: its files, and what they say of their model."""

import enum
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from weighbridge.core import Doc, dataclass, table
from weighbridge.quantities.base import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongChecksum:
    """A checksum that the bytes do not have."""

    place: Annotated[str, Doc("what it is of", typical="data")]
    stored: Annotated[str, Doc("as the file says", typical="0x00000000")]
    computed: Annotated[str, Doc("as the bytes give it", typical="0x00000001")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStructure:
    """One file of a checkpoint, or one beside it that another loader would take instead."""

    name: Annotated[str, Doc("`file` and its name", typical="file model.safetensors")]
    role: Annotated[str, Doc("weights, index or beside", typical="weights")]
    bytes: Annotated[int, Doc("size", unit="bytes", typical=128)]
    tensor_bytes: Annotated[
        int, Doc("size of the tensors in it; of an index, of all of them", unit="bytes", typical=64)
    ]
    declared_bytes: Annotated[int | float | None, Doc("total that an index declares", unit="bytes")]
    other_tensors: Annotated[
        int, Doc("tensors of an optimizer, a scheduler or a callback: no weights, not judged", typical=0)
    ]
    checksums: Annotated[int, Doc("checksums that the file holds", typical=0)]
    wrong_checksums: Annotated[tuple[WrongChecksum, ...], Doc("those that do not agree", typical=())]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnClaim:
    """One thing that a checkpoint says of itself: of a file, of a packed weight, or of its layers."""

    name: Annotated[str, Doc("`file` and its name, the tensor of codes, or the list of layers", typical="model.layers")]
    about: Annotated[str, Doc("shard, packing or layers", typical="layers")]
    says: Annotated[str, Doc("what is said, and where", typical="2 layers by config.json num_hidden_layers")]
    wrong: Annotated[str, Doc("what contradicts it; empty: nothing", typical="")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBeside:
    """A file of a bound folder that a loader may read, beside the tensors and the configuration that are compared."""

    name: Annotated[str, Doc("path in the folder", typical="2_Dense/model.safetensors")]
    role: Annotated[str, Doc("weights, structure, other or unknown", typical="weights")]
    source: Annotated[
        str, Doc("digest of the source's content, its size where nothing is beside it; empty: none", typical="json:00")
    ]
    candidate: Annotated[str, Doc("the same of the import", typical="json:00")]
    why: Annotated[str, Doc("why a difference changes none of the tensors' values", typical="")]


class FieldKind(enum.Enum):
    """What a field of a configuration holds; a value of another kind is compared as the text of it."""

    COUNT = enum.auto()
    NUMBER = enum.auto()
    WORD = enum.auto()
    SWITCH = enum.auto()


FIELDS = """
WORD architecture; COUNT block_count embedding_length feed_forward_length context_length vocab_size head_count
head_count_kv head_dim head_dim_local; NUMBER rope_base rope_base_local; COUNT rope_dimensions; WORD rope_scaling;
NUMBER rope_scaling_factor; COUNT rope_original_context; NUMBER norm_epsilon; WORD activation; COUNT expert_count
expert_used_count sliding_window; NUMBER attn_logit_softcap final_logit_softcap; SWITCH tied_embeddings; NUMBER
rope_attn_factor rope_ext_factor rope_beta_fast rope_beta_slow; COUNT value_dim q_lora_rank kv_lora_rank; WORD
sliding_layers attention_layers; COUNT expert_feed_forward_length expert_shared_feed_forward_length
expert_shared_count expert_group_count expert_group_used_count leading_dense_block_count nextn_predict_layers; SWITCH
expert_weights_norm; NUMBER expert_weights_scale; WORD expert_gating; COUNT ssm_conv_kernel ssm_inner_size
ssm_state_size ssm_time_step_rank ssm_group_count; NUMBER logit_scale embedding_scale residual_scale attention_scale
clamp_kqv; SWITCH parallel_residual causal; COUNT bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id
mask_token_id; SWITCH add_bos_token add_eos_token; WORD chat_template tokenizer_model token_types
"""
CONFIG_FIELDS: Mapping[str, FieldKind] = {
    name: FieldKind[kind] for kind, *names in map(str.split, FIELDS.split(";")) for name in names
}
CONFIG_LISTS = ("tokens", "merges")  # of the tokenizer, compared entry by entry
UNREAD = "no rule reads it"
RUNS = "runs"


def is_key(name: str) -> bool:
    """Return whether a name is one of a key: of a file beside a checkpoint, or of a header."""
    return ":" in name or "." in name


def is_named(key: str, globs: Iterable[str]) -> bool:
    """Return whether one of these globs names a key."""
    return any(fnmatchcase(key, glob) for glob in globs)


def beside_codes(key: str) -> str:
    """Return why a key changes nothing, `RUNS` where it changes what a model computes, "" where it reads codes."""
    return next((why for why, globs in table("quantities/packing_keys").items() if is_named(key, globs)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDifference:
    """The first entry in which two lists of a tokenizer differ."""

    index: Annotated[int, Doc("the entry", typical=7)]
    source: Annotated[str, Doc("the source's piece", typical="a")]
    candidate: Annotated[str, Doc("the import's piece", typical="b")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigField:
    """What two sides say of one field of their model, stated or not, or of one key that no field reads."""

    name: Annotated[str, Doc("the field, or the key with its file", typical="block_count")]
    source: Annotated[object, Doc("the source's value; of a list a digest; None where nobody knows", typical=2)]
    candidate: Annotated[object, Doc("the import's value", typical=2)]
    source_read: Annotated[str, Doc("where the source states it", typical="config.json num_hidden_layers")]
    candidate_read: Annotated[str, Doc("where the import states it", typical="llama.block_count")]
    source_basis: Annotated[str, Doc("reported, derived or default; empty where it is not known", typical="reported")]
    candidate_basis: Annotated[str, Doc("the same of the import", typical="reported")]
    why: Annotated[str, Doc("what keeps the field from being compared", typical="")]
    also: Annotated[tuple[str, ...], Doc("other values that a side states elsewhere", typical=())]
    entries: Annotated[int | None, Doc("entries of a list")]
    differing: Annotated[int | None, Doc("entries that differ")]
    first_difference: Annotated[EntryDifference | None, Doc("the first of them")]


QUANTITIES = (
    rows("file_structure", FileStructure),
    rows("own_claims", OwnClaim),
    rows("model_config", ConfigField),
    rows("files_beside", FileBeside),
)
