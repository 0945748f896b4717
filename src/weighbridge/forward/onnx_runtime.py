"""An ONNX file as a candidate: `onnx:FILE.onnx`, or `onnx:FILE.onnx?provider=CUDAExecutionProvider`.

Its points are found by the module paths that `torch.onnx.export(…, dynamo=True)` writes on every node. What no single
value stands for, such as queries after the rotation, is no point: it is counted, and what is made of it is compared.
"""

import ast
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from weighbridge.core import NDArray, SubjectError, dataclass, grouped, np, replace
from weighbridge.core.local_files import files_sha256
from weighbridge.forward.between_traces import Again
from weighbridge.forward.points import Points
from weighbridge.forward.stacks import Digests, Stack, Tokens
from weighbridge.forward.trace_file import Trace

SCOPES = "pkg.torch.onnx.name_scopes"
ALONE = "run it in ONNX Runtime alone, on that provider"
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Stack):
    """A session whose graph may hold more values than the reference has points for."""

    def capture(self, tokens: Tokens, path: Path | Again, wanted: Points = None, weights: Digests = None) -> Trace:
        """Run it forward, and write a trace of the points that are wanted."""

        def run(tokens: Tokens) -> "Mapping[str, NDArray[Any]]":
            return {point: values for point, values in self.run(tokens).items() if wanted is None or point in wanted}

        return Stack.capture(replace(self, run=run), tokens, path, weights=weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFile:
    """A file, and the execution provider that shall compute all of it."""

    spec: str
    path: Path
    provider: str = CPU

    @classmethod
    def named(cls, spec: str) -> "OnnxFile":
        """Read `onnx:FILE?provider=…`; refuse with `onnx-option` or `no-file`."""
        place, _, asked = spec.removeprefix("onnx:").partition("?")
        options = dict(parse_qsl(asked, keep_blank_values=True))
        if odd := sorted(set(options) - {"provider"}):
            raise SubjectError("onnx-option", f"unknown option {odd[0]!r}", where=spec, remedy="use provider")
        if not Path(place).is_file():
            raise SubjectError("no-file", "no such file", where=place, remedy="check the path after `onnx:`")
        return cls(spec=spec, path=Path(place), **options)

    def make(self) -> Session | None:
        """Return a session on the provider alone; None where it wants CUDA and there is none."""
        try:
            import onnx
            import onnxruntime
        except ImportError as problem:
            what, remedy = f"{problem.name} is not installed", "pip install 'weighbridge[onnxruntime]'"
            raise SubjectError("no-onnxruntime", what, where=self.spec, remedy=remedy) from None
        have = onnxruntime.get_available_providers()
        if self.provider == CUDA and not (CUDA in have and _cuda_starts(onnx, onnxruntime)):
            return None
        if self.provider not in have:
            remedy = f"use one of {', '.join(have)}"
            raise SubjectError("onnx-provider", f"no {self.provider[:60]!r} here", where=self.spec, remedy=remedy)
        try:
            model = onnx.load(self.path, load_external_data=False)
            folder = str(self.path.parent.resolve())
            weights = {one.name: onnx.numpy_helper.to_array(one, folder) for one in model.graph.initializer}
            points = _points(model.graph)
            known = {output.name for output in model.graph.output}
            model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in points if name not in known)
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4  # what goes wrong is raised
            options.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(self.provider != CPU)))
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[self.provider])
        except Exception as problem:  # protobuf and C++ raise classes of their own
            what = f"ONNX Runtime makes no session on {self.provider}: {problem}"
            raise SubjectError("onnx-session", what[:400], where=self.spec, remedy=ALONE) from problem
        placed = {part.ep_name for part in session.get_provider_graph_assignment_info()} | {session.get_providers()[0]}
        if placed != {self.provider}:
            what = f"computed on {', '.join(sorted(placed))}, not on {self.provider} alone"
            raise SubjectError("onnx-provider", what, where=self.spec, remedy=ALONE)
        sizes = Counter[str]()
        for array in weights.values():
            sizes[str(array.dtype)] += array.size * (array.dtype.kind not in "iub")
        dtype = max(sizes, key=lambda name: sizes[name], default="float32")
        device = self.provider.removesuffix("ExecutionProvider").lower()
        name, run = f"onnxruntime {onnxruntime.__version__}", partial(_run, session, points)
        where: dict[str, Any] = {"partial": True, "device": device, "observed": device, "checkpoint": str(self.path)}
        return Session(run=run, dtype=dtype, weights=weights, name=name, **where)

    def digest(self, *_others: Path | None) -> Mapping[str, str]:
        """Digest the file: name → sha256."""
        return {self.path.name: files_sha256(self.path)}


def _cuda_starts(onnx: Any, onnxruntime: Any) -> bool:
    """Return whether CUDA, which the build lists, starts on this host; ONNX Runtime itself goes on without it."""
    one, other = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "one", [one], [other])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CUDA])
    return bool(session.get_providers()[0] == CUDA)


def _points(graph: Any) -> Mapping[str, str]:
    users = grouped((name, at) for at, node in enumerate(graph.node) for name in node.input)
    within: list[frozenset[str]] = [frozenset()] * len(graph.node)  # the modules that a node lies in
    for at, node in reversed(list(enumerate(graph.node))):
        written = [entry.value for entry in node.metadata_props if entry.key == SCOPES]
        after = [within[user] for name in node.output for user in users.get(name, ())]
        # A node that the exporter's optimiser put in lies where all that uses it lies.
        inherited = frozenset[str]().union(*after[:1]).intersection(*after)
        within[at] = frozenset(ast.literal_eval(written[0])[:-1]) if written else inherited
    paths = sorted(frozenset[str]().union(*within) - {""}, key=lambda path: -path.count("."))
    outputs = [output.name for output in graph.output]
    weights = {weight.name for weight in graph.initializer} | {given.name for given in graph.input} | {""}
    leaving: dict[str, str] = {}
    entering: dict[str, str] = {}
    for path in paths:  # those deepest first, as their hooks are called
        nodes = [node for node, of in zip(graph.node, within, strict=True) if path in of]
        made = dict.fromkeys(name for node in nodes for name in node.output)
        out = [name for name in made if name in outputs or any(path not in within[at] for at in users.get(name, ()))]
        if len(out) == 1:
            leaving.setdefault(out[0], f"{path}.out")
        given = (name for node in nodes for name in node.input if name not in made and name not in weights)
        if not any(other.startswith(f"{path}.") for other in paths):
            entering.setdefault(next(given, outputs[0]), f"{path}.in")
    return {**entering, outputs[0]: "logits", **leaving}


def _run(session: Any, points: Mapping[str, str], tokens: Tokens) -> "Mapping[str, NDArray[Any]]":
    ids = np.array(tokens, dtype=np.int64)
    others = {"attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.shape[1])[None].repeat(len(ids), 0)}
    names = [output.name for output in session.get_outputs()]
    captured = {}
    found = session.run(names, {given.name: others.get(given.name, ids) for given in session.get_inputs()})
    for name, array in zip(names, found, strict=True):
        if name in points and array.ndim > 1 and array.dtype.kind == "f":
            lead = (1, ids.shape[1]) if array.shape[:2] == (1, ids.shape[1]) else ids.shape
            if array.shape[:2] == lead or array.shape[0] == ids.size:
                captured[points[name]] = array.reshape(*lead, -1)
    return captured
