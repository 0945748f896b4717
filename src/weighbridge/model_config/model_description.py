"""Read what a checkpoint's side says of its model: fields of its configuration, its vocabulary, its chat template."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from weighbridge.core import Json, dataclass, table
from weighbridge.model_config import literal_keys, model_keys
from weighbridge.model_config import vocabulary as vocabularies
from weighbridge.model_config.model_defaults import DEFAULTS
from weighbridge.model_config.model_keys import APR, GGUF, HUGGING_FACE, STANDS_FOR, Model, Parsed, Stated, of_config
from weighbridge.model_config.vocabulary import MAX_TOKENIZER, TOKENIZER, Vocabulary, content_of
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, FieldKind
from weighbridge.storage.readable import sha256
from weighbridge.views import checkpoint
from weighbridge.views.checkpoint import CONFIG, MAX_CONFIG, CheckpointView, config_beside, json_beside, open_sidecar

DESCRIBED = "described"
GENERATION, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"
TEMPLATE, TYPES = "tokenizer.chat_template", "tokenizer.ggml.token_type"
# Read as fields, or as a vocabulary where there is no tokenizer.json, which every loader takes first.
READ = {CONFIG, GENERATION, TOKENIZER_CONFIG, TOKENIZER, "vocab.json", "vocab.txt", "merges.txt"}
BYTE_PAIRS = "gpt2"  # GGUF's name of the kind whose types follow from a directory
TEMPLATE_FILE, MAX_TEMPLATE = "chat_template.jinja", 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """One side's model, its vocabulary, and all that it states."""

    model: Model
    vocabulary: Vocabulary | None
    keys: Mapping[str, Json]  # by the names of `literal_keys`
    home: str = ""  # the folder that says it, where the checkpoint's own file does not
    # Of a directory: whether its config.json states some size; None where it has none.
    sized: bool | None = None
    beside: Mapping[str, Json] | None = None  # the keys of its further files; None where no folder was bound

    @property
    def silent(self) -> bool:
        """Return whether this side says nothing at all."""
        return not self.model.fields and self.vocabulary is None and self.sized is None


def describe_model(view: CheckpointView | ModelDescription) -> ModelDescription:
    """Read one side, once; refuse with `config`, `file-…` or `gguf-…`, when something is there and cannot be read."""
    if isinstance(view, ModelDescription):
        return view
    read = {"apr": _of_apr, "gguf": _of_gguf}.get(view.format, _of_directory)
    known: ModelDescription = view.sidecars.read.get(DESCRIBED) or read(view)
    view.sidecars.read[DESCRIBED] = known
    return known


def _of_apr(view: CheckpointView) -> ModelDescription:
    name, keys = str(view.metadata.get("architecture") or ""), literal_keys.of_document(view.metadata, "metadata")
    model = Model(form=APR, architecture=name, fields=of_config(view.metadata, "metadata"))
    return ModelDescription(model=model, vocabulary=None, keys=keys)


def _of_gguf(view: CheckpointView) -> ModelDescription:
    from weighbridge.formats.gguf_file import LongValues

    architecture = str(view.metadata.get("general.architecture") or "")
    values = LongValues(next(iter(view.files.values())))
    tensors = {name: one.shape for name, one in view.tensors.items()}
    wanted = [key for keys in model_keys.gguf_keys(architecture).values() for key in keys]
    metadata: dict[str, Json] = {**view.metadata}
    metadata |= {key: values.numbers(key) for key in wanted if key in metadata and metadata[key] is None}
    fields = model_keys.of_gguf(metadata, tensors)
    if (template := values.text(TEMPLATE)) is not None:
        fields["chat_template"] = Stated(value=digest(template), read=TEMPLATE)
    tokenizer = str(metadata.get(model_keys.TOKENIZER_MODEL) or "")
    types = values.numbers(TYPES, most=vocabularies.MAX_ID)
    if isinstance(types, list) and tokenizer == BYTE_PAIRS:
        fields["token_types"] = Stated(value=_runs(types), read=TYPES)
    model = Model(form=GGUF, architecture=architecture, fields=fields, tensors=tensors, tokenizer=tokenizer)
    vocabulary = vocabularies.of_gguf(values)
    if vocabulary is not None and "vocab_size" not in fields:
        fields["vocab_size"] = Stated(value=vocabulary.count, read=f"entries of {vocabulary.read}", basis="derived")
    keys = {}  # every one but the lists that are compared entry by entry; a long value by its digest
    for key, short in metadata.items():
        if not literal_keys.is_list(key):
            value = values.numbers(key) if short is None else short
            keys[key] = values.digest(key) if value is None else literal_keys.as_text(value)
    return ModelDescription(model=model, vocabulary=vocabulary, keys=keys)


def _of_directory(view: CheckpointView) -> ModelDescription:
    config, own = config_beside(view) or {}, json_beside(view, CONFIG, MAX_CONFIG)
    generation = json_beside(view, GENERATION, MAX_CONFIG) or {}
    settings = json_beside(view, TOKENIZER_CONFIG, MAX_CONFIG) or {}
    tokenizer = json_beside(view, TOKENIZER, MAX_TOKENIZER)
    vocabulary = vocabularies.of_directory(view, tokenizer, settings)
    fields = of_config(config, CONFIG)
    sized = None if own is None else any(CONFIG_FIELDS[name] is FieldKind.COUNT for name in fields)
    fields |= model_keys.of_tokenizer(config, generation, settings, _known(tokenizer, settings, vocabulary))
    if tokenizer is not None:
        fields |= model_keys.of_tokenizer_model(tokenizer.get("model"))
        size, kind = (fields[name].value if name in fields else None for name in ("vocab_size", "tokenizer_model"))
        if kind == BYTE_PAIRS and vocabulary is not None:
            types = vocabularies.token_types(vocabulary, size if isinstance(size, int) else 0)
            fields["token_types"] = Stated(value=_runs(types), read=f"{TOKENIZER} added_tokens")
        entry = {token: settings.get(f"{token}_token") for pair in STANDS_FOR.items() for token in pair}
        framing = {token: content_of(entry[token] or entry[other]) for token, other in STANDS_FOR.items()}
        fields |= model_keys.of_post_processor(tokenizer.get("post_processor"), framing)
    family, named = str(config.get("model_type") or ""), str(settings.get("tokenizer_class") or "")
    if "tokenizer_model" in fields and "tokenizer_model" in table(DEFAULTS)["of_model_type"].get(family, {}):
        del fields["tokenizer_model"]  # whose tokenizer has a kind of its own
    if (template := _template(view, settings)) is not None:
        fields["chat_template"] = template
    keys: dict[str, Json] = {}
    for place, one in ((CONFIG, own), (GENERATION, generation), (TOKENIZER_CONFIG, settings), (TOKENIZER, tokenizer)):
        keys |= literal_keys.of_document(one, place)
    taken: dict[str, tuple[Json, str]] = {}
    if vocabulary is not None:
        taken["unk_token_id"] = vocabulary.unknown, "the sentencepiece model's own"
        file = "" if vocabulary.why else vocabulary.read  # no sentencepiece model, whatever it is called
        taken["tokenizer_model"] = table(DEFAULTS)["of_file"].get(file), f"the kind of {file}"
    if tokenizer is not None and tokenizer.get("post_processor") is None:
        without = False, "a tokenizer.json without a post_processor adds nothing"
        taken |= {"add_bos_token": without, "add_eos_token": without}
    model = Model(form=HUGGING_FACE, architecture=family, fields=fields, tokenizer=named, taken=taken)
    further, home = (_further(view) if view.whole else None), view.folder.home
    return ModelDescription(model=model, vocabulary=vocabulary, keys=keys, home=home, beside=further, sized=sized)


def _further(view: CheckpointView) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, role in checkpoint.beside(view).items():
        if role not in (checkpoint.SETTINGS, checkpoint.STRUCTURE) or name in READ or name.startswith("chat_template"):
            continue
        if name.endswith(".json"):
            said = checkpoint.document_beside(view, name)
            if name == "special_tokens_map.json":  # by text: versions of transformers write flags that stand elsewhere
                lists = {key: [content_of(each) for each in one] for key, one in said.items() if isinstance(one, list)}
                said = {key: content_of(one) for key, one in said.items()} | lists
            found |= literal_keys.of_document(said, name)
        elif (file := open_sidecar(view, name, MAX_TOKENIZER)) is not None:
            found[name] = f"sha256:{sha256(file)}"
    return found


def _runs(types: Iterable[Json]) -> Json:
    runs = (f"{kind} x {sum(1 for _ in run)}" for kind, run in itertools.groupby(types))
    return model_keys.canonical(", ".join(runs), FieldKind.WORD)


def _known(tokenizer: Parsed | None, settings: Parsed, vocabulary: Vocabulary | None) -> dict[str, int]:
    added = (tokenizer or {}).get("added_tokens") or []
    entries = [*vocabularies.numbered(settings), *((one.get("id"), one) for one in added if isinstance(one, Mapping))]
    found = dict(vocabulary.known) if vocabulary is not None else {}
    for at, one in entries:
        if type(at) is int and isinstance(one, Mapping) and isinstance(one.get("content"), str):
            found[one["content"]] = at
    return found


def _template(view: CheckpointView, settings: Parsed) -> Stated | None:
    alone = checkpoint.text_beside(view, TEMPLATE_FILE, MAX_TEMPLATE)
    older = (json_beside(view, "chat_template.json", MAX_TEMPLATE) or {}).get("chat_template")
    first = settings.get("chat_template")
    said = f"{TOKENIZER_CONFIG} chat_template{' (the default one)' if isinstance(first, list) else ''}"
    places = (first, said), (alone, TEMPLATE_FILE), (older, "chat_template.json")
    found = [(digest(text), place) for value, place in places if (text := _default(value)) is not None]
    if not found:
        return None
    (value, read), *also = found
    return Stated(value=value, read=read, also=tuple(pair for pair in also if pair[0] != value))


def _default(template: Any) -> Json:
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, Mapping)}
        return named.get("default", next(iter(named.values()), None))
    return template  # type: ignore[no-any-return]


def digest(template: Json) -> Json:
    """Return the digest of a template's text; what is no text is kept as it is."""
    if not isinstance(template, str):
        return model_keys.canonical(template, FieldKind.WORD)
    return f"sha256:{hashlib.sha256(template.encode('utf-8', 'surrogatepass')).hexdigest()}"
