"""How each packing is read: one function a way of packing, from its published arithmetic, by names, dtypes and shapes.

Where these or the configuration leave a doubt, there is no rule. The codes of AWQ, compressed-tensors and GPTQ may be
others than the nearest: their packers let one code make up for the error of others.
"""

import functools
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard

from weighbridge.comparison.casts import decode, words
from weighbridge.core import NDArray, WeighbridgeError, loads, np
from weighbridge.formats.tensor import FLOATS, Tensor, numpy_dtype
from weighbridge.packing.packed_weights import PackedWeight, schemes, stores_fp8
from weighbridge.packing.unpacking import LARGEST_F8, NESTED_SLACK, SLACK, WORD, Codes, Nested, Rule, floats

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # E2M1, the upper bit is the sign
REACH = 4 / 3  # of the largest code: an MX scale is a power of two, and lets values up to 8 be stored as 6
BEYOND_F8 = LARGEST_F8 * (1 + 2 * SLACK)
BITS = (2, 4, 8)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of the columns in a word, from its lowest bits on
OTHER_SCALES = {".weight_zero_point", ".weight_scale_2"}  # that this rule does not know
SEVERAL_A_BYTE = ("bitnet", "gemma")  # codes, under the names of those that take a byte each
OF_BYTES = ("int-quantized", "float-quantized", "naive-quantized")  # compressed-tensors' formats
MOST_STATE = 1 << 12  # bytes of JSON

Read: TypeAlias = Callable[[Tensor], memoryview]  # a small tensor, whole


def rule_of(weight: PackedWeight, settings: Mapping[str, Any], read: Read) -> Rule | None:
    """Return how a packed weight is read, None where that is not sure; a ContradictionError where it cannot be."""
    found = RULES.get(weight.packing.name if weight.packing else "")
    return found(weight, settings, read) if found is not None and weight.codes.elements else None


class ContradictionError(ValueError):
    """Codes and scales of one weight cannot belong together."""


def _require(tensor: Tensor, shape: tuple[int, ...], blocks: str) -> None:
    if tensor.shape != shape:
        called = tensor.name.rpartition(".")[2]
        raise ContradictionError(f"{blocks} need {called} of {list(shape)}, and there are {list(tensor.shape)}")


def _whole(bits: int, least: int) -> dict[str, Any]:
    """Return what a rule says of whole numbers of so many bits, from `least` on."""
    most = least + (1 << bits) - 1
    beyond = 1 + 2 * SLACK * (most - least)
    return {"least": least, "most": most, "reach": (least - beyond, most + beyond)}


def _side_by_side(tensor: Tensor, bits: int, columns: int) -> Codes:
    rows = max(math.prod(tensor.shape[:-1]), 1)
    return Codes(tensor=tensor, bits=bits, columns=columns, row_bytes=tensor.nbytes // rows)


def _scaled(weight: PackedWeight, settings: Mapping[str, Any], _read: Read) -> Rule | None:
    """Bytes times a scale: DeepSeek-V3's and transformers' fp8, fbgemm's, compressed-tensors' of 8 bits."""
    codes, scales, method = weight.codes, weight.scales[0], settings.get("quant_method")
    by_group = codes.dtype == "I8" and schemes(settings)  # which says so of whole numbers, too
    relabelled = codes.dtype in ("U8", "I8", "F8_E5M2") and stores_fp8(settings) and not by_group
    doubtful = method in SEVERAL_A_BYTE or weight.members.keys() & OTHER_SCALES
    readable = codes.dtype in ("F8_E4M3", "I8") or relabelled
    if doubtful or not readable or len(codes.shape) < 2 or not reads(scales):
        return None
    rows, columns = math.prod(codes.shape[:-1]), codes.shape[-1]
    high, wide = (1 if scales.elements == rows else rows), columns
    each = [one for one, many in (("tensor", 1), ("channel", rows)) if scales.elements == many]
    scheme = _scheme_of(settings, codes.dtype, each)
    if scales.elements > 1 and scales.elements != rows:
        block = settings.get("weight_block_size") or scheme.get("block_structure") or [128, 128]
        if not isinstance(block, list) or len(block) != 2 or not all(map(_is_size, block)):
            return None
        high, wide = block
        tiles = (*codes.shape[:-2], -(-codes.shape[-2] // high), -(-columns // wide))
        if relabelled and scales.shape != tiles:
            return None  # two codes of FP4 a byte, beside weights of FP8
        _require(scales, tiles, f"blocks of {high}x{wide}")
        if len(codes.shape) > 2 and codes.shape[-2] % high:
            return None
    if relabelled:
        raise ContradictionError(f"its codes are {codes.dtype}, and {method} means F8_E4M3")
    values = _whole(8, -128) if codes.dtype == "I8" else {"points": _f8(), "reach": (-BEYOND_F8, BEYOND_F8)}
    stored = _side_by_side(codes, 8, columns)
    return Rule(shape=codes.shape, codes=stored, scales=scales, high=high, wide=wide, **values)


def _by_row(weight: PackedWeight, settings: Mapping[str, Any], read: Read) -> Rule | None:
    """Quanto's and torchao's bytes, with a scale for the tensor or each row of a matrix, and no zero points."""
    scales, zeros = weight.scales[0], weight.members.get("._weight_zero_point")
    plain = scales.elements == 1 or scales.shape == (*weight.codes.shape[:1], 1)
    return _scaled(weight, settings, read) if plain and (zeros is None or not any(read(zeros))) else None


@functools.cache
def _f8() -> tuple[float, ...]:
    return tuple(decode(words(memoryview(bytes(range(256))), "F8_E4M3"), "F8_E4M3").tolist())


def _affine(weight: PackedWeight, settings: Mapping[str, Any], _read: Read) -> Rule | None:
    """MLX's affine quantisation: `code * scale + bias`, codes in words from the lowest bits on."""
    codes, scales, biases = weight.codes, weight.members[".scales"], weight.members.get(".biases")
    own = settings.get(weight.name.removesuffix(".weight"))
    settings = {**settings, **own} if isinstance(own, dict) else settings
    if settings.get("mode", "affine") != "affine":
        return None
    bits, group = settings.get("bits"), settings.get("group_size")
    if bits not in BITS or not _is_size(group) or biases is None or not reads(scales) or len(codes.shape) < 2:
        return None
    shape = (*codes.shape[:-1], codes.shape[-1] * WORD // bits)
    _require(scales, (*shape[:-1], shape[-1] // group), f"groups of {group}")
    _require(biases, scales.shape, f"groups of {group}")
    if not reads(biases):
        return None
    stored = _side_by_side(codes, bits, shape[-1])
    return Rule(shape=shape, codes=stored, scales=scales, offsets=biases, high=1, wide=group, **_whole(bits, 0))


def _mx(weight: PackedWeight, _settings: Mapping[str, Any], _read: Read) -> Rule | None:
    """OCP's MXFP4 as gpt-oss stores it: sixteen bytes of two codes, the lower one first, and a power of two."""
    codes, scales = weight.codes, weight.members["_scales"]
    if len(codes.shape) < 3 or codes.shape[-1] != 16 or scales.shape != codes.shape[:-1] or scales.dtype != "U8":
        return None
    shape = (*codes.shape[:-2], codes.shape[-2] * 32)
    packed = Codes(tensor=codes, bits=4, columns=shape[-1], row_bytes=shape[-1] // 2)
    values: dict[str, Any] = {"points": (*FP4, *(-one for one in FP4)), "reach": (-FP4[-1] * REACH, FP4[-1] * REACH)}
    return Rule(shape=shape, codes=packed, scales=scales, high=1, wide=32, turned=True, **values)


def _compressed(weight: PackedWeight, settings: Mapping[str, Any], read: Read) -> Rule | None:
    """compressed-tensors' pack-quantized: whole numbers in words, with a scale for each row or group of columns."""
    codes, scales, shape = weight.codes, weight.members[".weight_scale"], weight.members.get(".weight_shape")
    found = schemes(settings) or [{}]
    scheme = found[0] if all(one == found[0] for one in found) else {}
    if settings.get("format") in OF_BYTES:
        raise ContradictionError(f"the format {settings['format']!r} has no weight_packed")
    if shape is None or (shape.dtype, shape.elements) != ("I64", 2) or not reads(scales):
        return None
    bits, zeros = scheme.get("num_bits"), weight.members.get(".weight_zero_point")
    if scheme.get("type") != "int" or bits not in (4, 8) or codes.dtype != "I32":
        return None
    rows, columns = struct.unpack("<2q", read(shape))
    group = scheme.get("group_size") or columns
    if scheme.get("strategy") not in ("channel", "group") or not _is_size(group) or min(rows, columns) < 1:
        return None
    groups = -(-columns // group)
    _require(codes, (rows, -(-columns * bits // WORD)), f"{bits} bits of [{rows}, {columns}]")
    _require(scales, (rows, groups), f"groups of {group}")
    values = _whole(bits, -(1 << bits - 1))
    if zeros is not None:
        if zeros.dtype != "I32":
            return None
        _require(zeros, (-(-rows * bits // WORD), groups), f"zero points of {bits} bits")
        values = _whole(bits, 0)
        values["zeros"] = Codes(tensor=zeros, bits=bits, columns=groups, row_bytes=groups * 4, down=True)
    values["columns_of"] = _numbers(weight.members.get(".weight_g_idx"), columns, groups, read)
    stored = _side_by_side(codes, bits, columns)
    return Rule(shape=(rows, columns), codes=stored, scales=scales, high=1, wide=group, chosen=True, **values)


def _scheme_of(settings: Mapping[str, Any], dtype: str, each: list[str]) -> Mapping[str, Any]:
    """Return the scheme of codes of a byte with a scale for each of these; nothing where none is said."""
    if settings.get("format") == "pack-quantized":
        raise ContradictionError("the format 'pack-quantized' stores weight_packed")
    kind, found = "int" if dtype == "I8" else "float", schemes(settings)
    of_bytes = (one for one in found if (one.get("type", "int"), one.get("num_bits", 8)) == (kind, 8))
    fits = (one for one in of_bytes if one.get("strategy") in each or one.get("strategy") not in ("tensor", "channel"))
    if (fit := next(fits, None)) is None and found:
        scales = (*each, "block")[0]
        raise ContradictionError(f"config_groups has no {kind} of 8 bits with a scale for each {scales}")
    return fit or {}


def _gptq_or_awq(weight: PackedWeight, settings: Mapping[str, Any], read: Read) -> Rule | None:
    """GPTQ and AWQ's GEMM: a matrix of inputs by outputs, read by its columns; `(code - zero) * scale`."""
    bits, group, method = (settings.get(key) for key in ("bits", "group_size", "quant_method"))
    codes, scales, zeros = weight.codes, weight.members[".scales"], weight.members.get(".qzeros")
    numbered, dynamic = weight.members.get(".g_idx"), settings.get("dynamic")
    overridden = dynamic if isinstance(dynamic, dict) else ()  # modules that have keys of their own, by GPTQModel
    if bits not in BITS or codes.dtype != "I32" or len(codes.shape) != 2 or zeros is None or zeros.dtype != "I32":
        return None
    awq = method == "awq" and bits == 4 and str(settings.get("version", "gemm")).lower() == "gemm"
    early = {"gptq": 1, "gptq_v2": 0}.get(str(settings.get("checkpoint_format", "gptq")))
    if len(scales.shape) != 2 or not reads(scales) or not (awq or (method == "gptq" and early is not None)):
        return None
    outputs, per = scales.shape[1], WORD // bits
    inputs = codes.shape[0] if awq else codes.shape[0] * per
    group = inputs if group == -1 else group
    if not _is_size(group) or outputs % per or any(not key.startswith("-:") for key in overridden):
        return None
    _require(codes, (inputs, outputs // per) if awq else (inputs // per, outputs), f"{outputs} outputs")
    _require(scales, (-(-inputs // group), outputs), f"groups of {group}")
    _require(zeros, (scales.shape[0], outputs // per), f"groups of {group} in {bits} bits")
    order = AWQ_ORDER if awq else ()
    in_words = Codes(tensor=codes, bits=bits, columns=inputs, order=order, down=awq, turned=True)
    of_groups = Codes(tensor=zeros, bits=bits, columns=scales.shape[0], order=order, down=True, turned=True)
    numbers = _numbers(numbered, inputs, scales.shape[0], read)
    if numbers is not None and (numbers == np.arange(inputs) // group).all():
        numbers = None
    elif numbers is not None and settings.get("desc_act") is False:
        raise ContradictionError("desc_act false means groups in order, and those of g_idx are not")
    early, middle, key = 0 if awq else early or 0, 1 << bits - 1, "zero_point" if awq else "sym"
    stored = np.frombuffer(read(zeros), np.uint8)
    if settings.get(key) is (not awq) and (stored != (middle - early) * (255 // ((1 << bits) - 1))).any():
        raise ContradictionError(f"{key} {str(not awq).lower()} means zero points of {middle}, and qzeros has others")
    values = {"zeros": of_groups, "early": early, "columns_of": numbers, **_whole(bits, 0)}
    return Rule(shape=(outputs, inputs), codes=in_words, scales=scales, high=1, wide=group, chosen=True, **values)


def _bitsandbytes(weight: PackedWeight, _settings: Mapping[str, Any], read: Read) -> Rule | None:
    """bitsandbytes: int8 of rows, or four bits of blocks of the flat weight, whose scales may be codes themselves."""
    codes, scales = weight.codes, weight.members.get(".SCB")
    if scales is not None:
        rows, columns = codes.shape if len(codes.shape) == 2 else (0, 0)
        _require(scales, (rows,), "rows")
        values: dict[str, Any] = {"codes": _side_by_side(codes, 8, columns), "factor": 1 / 127, **_whole(8, -128)}
        return Rule(shape=codes.shape, scales=scales, high=1, wide=columns, **values)
    state = next((one for end, one in weight.members.items() if ".quant_state." in end), None)
    points, absmax = weight.members.get(".weight.quant_map"), weight.members[".weight.absmax"]
    if state is None or state.elements > MOST_STATE or points is None or (points.dtype, points.shape) != ("F32", (16,)):
        return None
    stated = _state(read(state))
    shape, block = stated.get("shape"), stated.get("blocksize")
    if not isinstance(shape, list) or not shape or not all(map(_is_size, shape)) or not _is_size(block) or block % 2:
        return None
    elements = math.prod(shape)
    if elements % block:
        return None
    _require(absmax, (elements // block,), f"blocks of {block}")
    if (there := codes.nbytes * 2) != elements:
        raise ContradictionError(f"{codes.nbytes} bytes hold {there} codes, and a shape of {shape} needs {elements}")
    nested = _nested(weight, absmax, stated) if absmax.dtype == "U8" else None
    if nested is None and absmax.dtype != "F32":
        return None
    slack = SLACK if nested is None else NESTED_SLACK
    values = {"points": tuple(floats(read(points), "F32").tolist()), "reach": (-1 - 2 * slack, 1 + 2 * slack)}
    values |= {"slack": slack, "nested": nested}
    stored = Codes(tensor=codes, bits=4, columns=block, row_bytes=block // 2, order=(1, 0))
    return Rule(shape=tuple(shape), codes=stored, scales=absmax, high=1, wide=block, **values)


def _nested(weight: PackedWeight, absmax: Tensor, stated: Mapping[str, Any]) -> Nested | None:
    maps, scales = (weight.members.get(f".weight.nested_{end}") for end in ("quant_map", "absmax"))
    wide, offset = stated.get("nested_blocksize"), stated.get("nested_offset")
    if maps is None or scales is None or not _is_size(wide) or not isinstance(offset, float):
        return None
    _require(maps, (256,), "bytes")
    _require(scales, (-(-absmax.elements // wide),), f"blocks of {wide} scales")
    return Nested(points=maps, scales=scales, wide=wide, offset=offset)


def _state(data: memoryview) -> Mapping[str, Any]:
    """Return what the JSON of a quantising state says; nothing where it is none."""
    try:
        found = loads(str(data, "utf-8"))
    except (ValueError, WeighbridgeError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(tensor: Tensor | None, many: int, groups: int, read: Read) -> "NDArray[np.int32] | None":
    """Return the group of each row or column, where a tensor numbers them."""
    if tensor is None:
        return None
    found = np.frombuffer(read(tensor), "<i4" if tensor.dtype == "I32" else "i1")
    if len(found) != many or not 0 <= found.min() <= found.max() < groups:
        raise ContradictionError(f"{tensor.name} does not number {groups} groups of {many}")
    return found


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value > 0


def reads(scales: Tensor) -> bool:
    """Return whether scales are of a dtype that is read as numbers."""
    return scales.dtype in (*FLOATS, "BF16", "F8_E8M0") and numpy_dtype(scales.dtype) is not None


RULES: Mapping[str, Callable[[PackedWeight, Mapping[str, Any], Read], Rule | None]] = {
    **dict.fromkeys(("fp8", "scaled"), _scaled),
    **dict.fromkeys(("quanto", "torchao"), _by_row),
    "fp8 or fbgemm_fp8 or compressed-tensors or modelopt": lambda *_: None,
    **dict.fromkeys(("aqlm", "eetq", "fouroversix", "higgs", "hqq", "sinq", "spqr", "vptq"), lambda *_: None),
    "mlx": _affine,
    "mxfp4": _mx,
    "compressed-tensors": _compressed,
    "gptq or awq": _gptq_or_awq,
    "bitsandbytes": _bitsandbytes,
}
