"""Results on disk: a tidy table as Parquet and CSV, and a manifest that vouches for both.

A results folder holds `results.parquet`, `results.csv` (the same content) and `manifest.json`, which is written last.
Nothing is pickled. Lists (raw samples) are list columns in Parquet and JSON text in CSV; a missing value is null in
Parquet and an empty, unquoted field in CSV (a text is always quoted, so an empty text stays one).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microbench.errors import MicrobenchError, UsageError

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
PARQUET = "results.parquet"
CSV = "results.csv"


class NotWritable(MicrobenchError, OSError):
    """A results folder that cannot be written; the message is one line."""


class BadResults(UsageError):
    """A folder that is no results folder, or one that cannot be trusted; the message is one line."""


# Files


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file so that a reader, or a crash, sees the old content or the new, never a part; OSError names `path`.

    Follows a symbolic link; refuses to replace anything that is not a regular file.
    """
    _write_all([(Path(path), data)])


def write_json_atomic(path: str | os.PathLike[str], obj: object) -> None:
    """Writes `obj` as indented JSON, in the way of `write_bytes_atomic`.

    ValueError, which names the key, for NaN, an infinity, a key that is no text or a value that JSON has no form for.
    Scalars of numpy and torch become plain numbers.
    """
    write_bytes_atomic(path, _json_bytes(obj))


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Creates the folder, parents included, if it is absent; NotWritable if a file could not be written into it.

    Leaves nothing behind but the folder itself, and not even that when it raises.
    """
    folder = Path(folder)
    missing = []
    for place in (folder, *folder.parents):
        if _is_dir(place):
            break
        if os.path.lexists(place):
            kind = "a file, not a folder" if place.is_file() else "not a folder"
            where = "it is" if place == folder else f"{place} is"
            raise NotWritable(f"cannot write to {folder}: {where} {kind}")
        missing.append(place)
    created: list[Path] = []
    try:
        for place in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process was faster
                place.mkdir()
                created.append(place)
        probe = folder / _temporary_name("probe")
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.write(descriptor, b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        for place in reversed(created):
            with contextlib.suppress(OSError):
                place.rmdir()
        raise NotWritable(f"cannot write to {folder}: {_reason(error)}") from error


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # Python before 3.14 lets "permission denied" through
        return False


def _reason(error: OSError) -> str:
    known = {
        errno.EACCES: "no permission",
        errno.EPERM: "no permission",
        errno.EROFS: "the file system is read-only",
        errno.ENOSPC: "no space left on the device",
    }
    text = known.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    return " ".join(text.split())


def _temporary_name(name: str) -> str:
    return f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def _write_all(files: Sequence[tuple[Path, bytes]]) -> None:
    """Writes every file beside its place first, then moves them in order: a full disk leaves all the old ones."""
    staged: list[tuple[Path, Path, Path]] = []
    try:
        for path, data in files:
            with _naming(path):
                target = Path(os.path.realpath(path))
                if target.exists() and not target.is_file():
                    raise OSError(errno.EINVAL, "not a regular file")
                temporary = target.parent / _temporary_name(target.name)
                staged.append((path, temporary, target))
                _write_synced(temporary, data)
        for path, temporary, target in staged:
            with _naming(path):
                os.replace(temporary, target)
    except BaseException:
        for _, temporary, _ in staged:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    # The system would name the temporary file, which means nothing to the caller.
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def _write_synced(path: Path, data: bytes) -> None:
    # Not tempfile.mkstemp: it would leave the results unreadable for all but their owner, whatever the umask.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# JSON


def _json_bytes(obj: object) -> bytes:
    return (json.dumps(_plain(obj, ""), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def _plain(value: Any, key: str) -> Any:
    """The value in plain Python types; ValueError naming the key for what JSON cannot hold."""
    where = f"key {key!r}" if key else "the top level"
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ValueError(f"{where} has the key {name!r}: keys must be text")
        return {
            _scalar(name, f"a key in {where}"): _plain(part, f"{key}.{name}" if key else name)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(part, f"{key}[{index}]") for index, part in enumerate(value)]
    return _scalar(value, where)


def _scalar(value: Any, where: str) -> bool | int | float | str | None:
    """The value as exactly a bool, int, float, str or None; ValueError, which starts with `where`, if it is none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return value.encode("utf-8").decode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"{where} is a text that UTF-8 cannot hold: {value!r}") from None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {float(value)}: only finite numbers are stored, and None where there is none")
        return float(value)
    raise ValueError(f"{where} is of type {type(value).__name__}, which cannot be stored")


# Table


def write_results(
    folder: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a results folder and returns the manifest as written; the folder is created if it is absent.

    `rows`: flat; each value is None, a bool, an int, a float, a text, or a list of one kind of these. Columns stand in
    the order in which the rows first name them; a row without a column has a missing value there.
    `manifest`: needs `environment`; `command` is taken from there if absent, `partial` is false if absent. Adds
    `schema_version` and `sha256` (file name to digest).

    All three files are written beside their places before the first is moved, so a full disk leaves earlier results as
    they were. ValueError (names row and column, or the key) for what cannot be stored; NotWritable; OSError.
    """
    columns, types = _columns(rows)
    parquet = _parquet_bytes(columns, types)
    csv = _csv_bytes(columns)
    document = dict(manifest)
    environment = document.get("environment")
    if not isinstance(environment, Mapping):
        raise ValueError("manifest: key 'environment' is missing")
    document.setdefault("command", environment.get("command"))
    if not document["command"]:
        raise ValueError("manifest: key 'command' is missing")
    document.setdefault("partial", False)
    if not isinstance(document["partial"], bool):
        raise ValueError("manifest: key 'partial' must be true or false")
    digests = {PARQUET: hashlib.sha256(parquet).hexdigest(), CSV: hashlib.sha256(csv).hexdigest()}
    head = {"schema_version": SCHEMA_VERSION, "partial": document["partial"]}
    document = head | {k: v for k, v in document.items() if k not in head} | {"sha256": digests}
    encoded = _json_bytes(document)
    check_writable(folder)
    folder = Path(folder)
    _write_all([(folder / PARQUET, parquet), (folder / CSV, csv), (folder / MANIFEST, encoded)])
    written: dict[str, Any] = json.loads(encoded)
    return written


def read_results(folder: str | os.PathLike[str]) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """The table and the manifest of a results folder; BadResults, one line, if it is none or cannot be trusted.

    A column of ints or bools with missing values gets the nullable type of pandas, so no int turns into a float. A list
    is a numpy array in its cell.
    """
    folder = Path(folder)
    if not _is_dir(folder):
        raise BadResults(f"{folder}: {'not a folder' if os.path.lexists(folder) else 'no such folder'}")
    manifest = _read_manifest(folder)
    digests = manifest.get("sha256")
    contents = {}
    for name in (PARQUET, CSV):
        if not isinstance(digests, dict) or not isinstance(digests.get(name), str):
            raise BadResults(f"{folder}: {MANIFEST} has no sha256 of {name}")
        contents[name] = _read_bytes(folder, name, absent=f"{name} is missing")
        if hashlib.sha256(contents[name]).hexdigest() != digests[name]:
            raise BadResults(f"{folder}: {name} does not match its sha256 in {MANIFEST}: changed or damaged")
    return _frame(folder, contents[PARQUET]), manifest


def _read_bytes(folder: Path, name: str, *, absent: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise BadResults(f"{folder}: {absent}") from None
    except OSError as error:
        raise BadResults(f"{folder}: cannot read {name}: {_reason(error)}") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    data = _read_bytes(folder, MANIFEST, absent=f"no {MANIFEST}: not a results folder")
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadResults(f"{folder}: {MANIFEST} is not valid JSON") from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadResults(f"{folder}: {MANIFEST} has no schema_version: not a results folder")
    if version > SCHEMA_VERSION:
        raise BadResults(
            f"{folder}: written by a newer version (schema {version}, this one reads up to {SCHEMA_VERSION}): upgrade"
        )
    assert isinstance(manifest, dict)
    return manifest


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """The values of each column, plain and of one kind, and the kind ("int", "list of float", ...)."""
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        if not row:
            raise ValueError(f"row {index} has no columns")
        for name in row:
            if not isinstance(name, str) or not name:
                raise ValueError(f"row {index}: column name {name!r} is no text")
            names[name] = None
    columns: dict[str, list[Any]] = {}
    kinds: dict[str, str] = {}
    for name in names:
        values = [_cell(row.get(name), index, name) for index, row in enumerate(rows)]
        present = [value for value in values if value is not None]
        lists = [value for value in present if isinstance(value, list)]
        if lists and len(lists) < len(present):
            raise ValueError(f"column {name!r} mixes lists and single values")
        kind = _kind([item for value in lists for item in value] if lists else present, name)
        if kind == "float":
            values = [_as_float(value) for value in values]
        columns[name] = values
        kinds[name] = f"list of {kind}" if lists else kind
    return columns, kinds


def _cell(value: Any, row: int, column: str) -> Any:
    if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist"):  # an array of numpy or torch
        value = value.tolist()
    where = f"row {row}, column {column!r}"
    is_list = isinstance(value, list | tuple)
    items = [_scalar(item, where) for item in (value if is_list else [value])]
    if is_list and None in items:
        raise ValueError(f"{where} has a missing value inside a list")
    for item in items:
        if isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise ValueError(f"{where} is {item}, which does not fit 64 bits")
    return items if is_list else items[0]


def _as_float(value: Any) -> Any:
    if isinstance(value, list):
        return [float(item) for item in value]
    return None if value is None else float(value)


def _kind(items: Iterable[Any], column: str) -> str:
    kinds = {type(item).__name__ for item in items}
    if kinds == {"int", "float"}:
        return "float"
    if len(kinds) > 1:
        raise ValueError(f"column {column!r} mixes {' and '.join(sorted(kinds))}")
    return kinds.pop() if kinds else "str"


def _parquet_bytes(columns: Mapping[str, list[Any]], kinds: Mapping[str, str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    scalars = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string()}
    arrays = []
    for name, values in columns.items():
        scalar = scalars[kinds[name].removeprefix("list of ")]
        arrays.append(pa.array(values, type=pa.list_(scalar) if kinds[name].startswith("list of ") else scalar))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), sink)
    return sink.getvalue()


def _csv_bytes(columns: Mapping[str, list[Any]]) -> bytes:
    # Not csv.writer: before Python 3.12 it cannot tell a missing value from an empty text.
    lines = [",".join(_quoted(name) for name in columns)]
    lines += [",".join(_field(value) for value in row) for row in zip(*columns.values(), strict=True)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return _quoted(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return repr(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _frame(folder: Path, data: bytes) -> pandas.DataFrame:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        series = {}
        for name in table.column_names:
            column = table.column(name)
            series[name] = column.to_pandas(types_mapper=nullable.get if column.null_count else None)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise BadResults(f"{folder}: {PARQUET} is not a readable Parquet file") from error
    return pd.DataFrame(series, columns=table.column_names)
