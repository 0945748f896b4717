"""Nouns, exact bytes and what every room may import from here; the rest of a module stays its own."""

__version__ = "0.1.0"

from weighbridge.core.canonical import (
    at_pointer,
    build,
    closed,
    dumps,
    grouped,
    json_value,
    loads,
    sha256,
    unique,
    wrong,
)
from weighbridge.core.data import data_path, table
from weighbridge.core.errors import (
    FAULTS,
    AmendmentError,
    BundleError,
    ContractError,
    EngineError,
    LaneError,
    LedgerError,
    PluginError,
    SubjectError,
    UsageError,
    WeighbridgeError,
    show_traceback,
)
from weighbridge.core.exit_code import Excuses, ExitCode, exit_code, unblocked
from weighbridge.core.frozen import Bytes, Doubles, Floats, NDArray, Values, Words, dataclass, field, np, replace, torch
from weighbridge.core.limits import Doc, LimitsError, Problem, closest, fields, nearest, plain, read, schema, show
from weighbridge.core.local_files import exists, is_file, is_folder, lexists, local_path, read_regular_file
from weighbridge.core.model import (
    EMPTY,
    EXECUTED,
    STATUS_ORDER,
    Basis,
    CanaryResult,
    Contract,
    Faulted,
    Fields,
    Finding,
    GateDecl,
    Json,
    Measured,
    Measurement,
    Offence,
    Origin,
    Outcome,
    Record,
    Rows,
    Scalar,
    Series,
    Severity,
    Status,
    SubjectKind,
    Trial,
    TrialResult,
    Unmeasured,
    Value,
    Verdict,
)
from weighbridge.core.printable import bare, bare_json, printable, quoted, scheme_of, singular, uncommanded
