"""Results on disk: what is written reads back equal, and what is damaged is refused with one line."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microbench import records
from microbench.records import (
    BadResults,
    NotWritable,
    check_writable,
    read_results,
    write_bytes_atomic,
    write_json_atomic,
    write_results,
)

MANIFEST: dict[str, Any] = {"environment": {"cpu_model": "A", "command": ["microbench", "run"]}}
ROWS: list[dict[str, Any]] = [
    {"case": "a", "n": 3, "median_ns": 1.5, "valid": True, "samples_ns": [1, 2, 3], "reason": None},
    {"case": 'b, "quoted"\n', "n": None, "median_ns": None, "valid": None, "samples_ns": None, "reason": "no GPU"},
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fails(number: int) -> Callable[..., Any]:
    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return failing


# Atomic files


def test_json_reads_back(tmp_path: Path) -> None:
    obj = {"b": [1, 2.5, None, True, "é"], "a": {"n": np.int64(3), "x": np.float32(0.5), "flag": np.bool_(True)}}
    write_json_atomic(tmp_path / "x.json", obj)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"b": [1, 2.5, None, True, "é"], "a": {"n": 3, "x": 0.5, "flag": True}}
    assert text.index('"b"') < text.index('"a"')
    assert "é" in text and text.endswith("}\n")
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize(
    ("obj", "line"),
    [
        (
            {"a": {"b": [1, math.nan]}},
            "key 'a.b[1]' is nan: only finite numbers are stored, and None where there is none",
        ),
        ({"a": -math.inf}, "key 'a' is -inf: only finite numbers are stored, and None where there is none"),
        (
            {"a": np.float64(math.inf)},
            "key 'a' is inf: only finite numbers are stored, and None where there is none",
        ),
        (math.nan, "the top level is nan: only finite numbers are stored, and None where there is none"),
        ({"a": {1: 2}}, "key 'a' has the key 1: keys must be text"),
        ({"a": {1, 2}}, "key 'a' is of type set, which cannot be stored"),
        ({"a": b"x"}, "key 'a' is of type bytes, which cannot be stored"),
        ({"a": "\ud800"}, "key 'a' is a text that UTF-8 cannot hold: '\\ud800'"),
    ],
)
def test_json_refuses_what_it_cannot_hold(tmp_path: Path, obj: object, line: str) -> None:
    (tmp_path / "x.json").write_text("old")
    with pytest.raises(ValueError) as caught:
        write_json_atomic(tmp_path / "x.json", obj)
    assert str(caught.value) == line
    assert (tmp_path / "x.json").read_text() == "old"
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize(
    ("function", "number"), [("fsync", errno.ENOSPC), ("replace", errno.EACCES), ("open", errno.EROFS)]
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    target = tmp_path / "x.bin"
    target.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fails(number))
        with pytest.raises(OSError) as caught:
            write_bytes_atomic(target, b"new")
    assert (caught.value.errno, caught.value.filename) == (number, str(target))
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["x.bin"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes_atomic(tmp_path / "x.bin", b"new")
    assert names(tmp_path) == []


def test_a_missing_folder_is_named_by_the_file_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_bytes_atomic(tmp_path / "none" / "x.bin", b"")
    assert caught.value.filename == str(tmp_path / "none" / "x.bin")


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        write_bytes_atomic(tmp_path / "folder", b"")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            write_bytes_atomic(tmp_path / "pipe", b"")
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")
def test_a_link_stays_a_link_and_the_umask_decides_the_mode(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    before = os.umask(0o027)
    try:
        write_bytes_atomic(tmp_path / "link", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


# Folders that cannot be written


def test_check_writable_creates_the_folder_and_nothing_in_it(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    check_writable(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(NotWritable) as caught:
        check_writable(file)
    assert str(caught.value) == f"cannot write to {file}: it is a file, not a folder"
    with pytest.raises(NotWritable) as caught:
        check_writable(file / "results")
    assert str(caught.value) == f"cannot write to {file / 'results'}: {file} is a file, not a folder"
    assert isinstance(caught.value, OSError)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotWritable, match=r"dangling: it is not a folder$"):
        check_writable(tmp_path / "dangling")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "no permission"),
        (errno.EPERM, "no permission"),
        (errno.EROFS, "the file system is read-only"),
        (errno.ENOSPC, "no space left on the device"),
        (errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)),
    ],
)
@pytest.mark.parametrize("function", ["open", "mkdir", "fsync"])
def test_a_folder_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int, reason: str
) -> None:
    folder = tmp_path / "a" / "b"
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fails(number))
        with pytest.raises(NotWritable) as caught:
            check_writable(folder)
    assert str(caught.value) == f"cannot write to {folder}: {reason}"
    assert names(tmp_path) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(NotWritable, match=r": no permission$"):
            check_writable(tmp_path / "results")
    finally:
        tmp_path.chmod(0o700)


# Results


def read_csv(folder: Path) -> list[dict[str, Any]]:
    """The rows of results.csv in the types of results.parquet."""
    schema = pq.read_schema(folder / records.PARQUET)
    types = {field.name: pa.string() if pa.types.is_list(field.type) else field.type for field in schema}
    table = pa.csv.read_csv(
        folder / records.CSV,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    )
    assert table.column_names == schema.names
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{k: json.loads(v) if k in lists and v is not None else v for k, v in row.items()} for row in rows]


def test_results_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written = write_results(folder, ROWS, MANIFEST | {"seed": 1})
    assert names(folder) == ["manifest.json", "results.csv", "results.parquet"]
    frame, manifest = read_results(folder)
    assert manifest == written
    assert list(frame.columns) == ["case", "n", "median_ns", "valid", "samples_ns", "reason"]
    assert frame["n"].tolist() == [3, pd.NA]
    assert frame["valid"].tolist() == [True, pd.NA]
    assert frame["case"].tolist() == ["a", 'b, "quoted"\n']
    assert list(frame["samples_ns"][0]) == [1, 2, 3] and frame["samples_ns"][1] is None
    assert pq.read_table(folder / records.PARQUET).to_pylist() == ROWS == read_csv(folder)


def test_the_csv_is_what_people_expect(tmp_path: Path) -> None:
    write_results(tmp_path, [{"case": "a", "n": 1, "x": 2.5, "ok": True, "s": [1, 2]}, {"case": ""}], MANIFEST)
    assert (tmp_path / "results.csv").read_text() == '"case","n","x","ok","s"\n"a",1,2.5,true,"[1, 2]"\n"",,,,\n'
    frame = pd.read_csv(tmp_path / "results.csv")
    assert (frame["case"][0], frame["n"][0], frame["x"][0], frame["s"][0]) == ("a", 1, 2.5, "[1, 2]")


def test_the_manifest_vouches_for_the_tables(tmp_path: Path) -> None:
    manifest = write_results(tmp_path, ROWS, MANIFEST | {"schema_version": 99, "sha256": "x", "extra": [1]})
    assert list(manifest)[:2] == ["schema_version", "partial"]
    assert (manifest["schema_version"], manifest["partial"], manifest["extra"]) == (1, False, [1])
    assert manifest["command"] == ["microbench", "run"]
    assert manifest["sha256"] == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("results.parquet", "results.csv")
    }
    assert write_results(tmp_path, ROWS, MANIFEST | {"partial": True, "command": "x"})["command"] == "x"
    assert read_results(tmp_path)[1]["partial"] is True


def test_no_rows_are_results_too(tmp_path: Path) -> None:
    write_results(tmp_path, [], MANIFEST | {"partial": True})
    frame, _ = read_results(tmp_path)
    assert frame.shape == (0, 0)


def test_large_ints_stay_exact_next_to_missing_values(tmp_path: Path) -> None:
    write_results(tmp_path, [{"t_ns": 2**62 + 1}, {"t_ns": None}], MANIFEST)
    assert read_results(tmp_path)[0]["t_ns"].tolist() == [2**62 + 1, pd.NA]


def test_numpy_values_and_mixed_numbers(tmp_path: Path) -> None:
    rows = [{"x": np.float64(1.5), "s": np.array([1, 2]), "m": 1}, {"x": 2, "s": (3.5,), "m": np.int32(2)}]
    write_results(tmp_path, rows, MANIFEST)
    assert read_csv(tmp_path) == [{"x": 1.5, "s": [1.0, 2.0], "m": 1}, {"x": 2.0, "s": [3.5], "m": 2}]


scalars: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
]
columns = st.sampled_from([*scalars, *(st.lists(scalar, max_size=4) for scalar in scalars)])


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parquet_and_csv_read_back_equal(tmp_path: Path, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(columns, min_size=1, max_size=4))
    row = st.fixed_dictionaries({f"c{index}": st.none() | kind for index, kind in enumerate(kinds)})
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    write_results(tmp_path, rows, MANIFEST)
    assert pq.read_table(tmp_path / records.PARQUET).to_pylist() == rows
    assert read_csv(tmp_path) == rows
    frame, _ = read_results(tmp_path)
    assert len(frame) == len(rows) and list(frame.columns) == list(rows[0])


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([{}], "row 0 has no columns"),
        ([{"": 1}], "row 0: column name '' is no text"),
        ([{"a": 1}, {2: 1}], "row 1: column name 2 is no text"),
        (
            [{"a": 1}, {"a": math.nan}],
            "row 1, column 'a' is nan: only finite numbers are stored, and None where there is none",
        ),
        (
            [{"a": [1.0, math.inf]}],
            "row 0, column 'a' is inf: only finite numbers are stored, and None where there is none",
        ),
        ([{"a": [1, None]}], "row 0, column 'a' has a missing value inside a list"),
        ([{"a": {"b": 1}}], "row 0, column 'a' is of type dict, which cannot be stored"),
        ([{"a": [[1]]}], "row 0, column 'a' is of type list, which cannot be stored"),
        ([{"a": 2**63}], f"row 0, column 'a' is {2**63}, which does not fit 64 bits"),
        ([{"a": 1}, {"a": "x"}], "column 'a' mixes int and str"),
        ([{"a": 1}, {"a": True}], "column 'a' mixes bool and int"),
        ([{"a": 1}, {"a": [1]}], "column 'a' mixes lists and single values"),
    ],
)
def test_rows_that_cannot_be_stored(tmp_path: Path, rows: list[dict[Any, Any]], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        write_results(tmp_path / "out", rows, MANIFEST)
    assert str(caught.value) == line
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        ({}, "manifest: key 'environment' is missing"),
        ({"environment": {}}, "manifest: key 'command' is missing"),
        (MANIFEST | {"partial": 1}, "manifest: key 'partial' must be true or false"),
        (
            MANIFEST | {"x": math.nan},
            "key 'x' is nan: only finite numbers are stored, and None where there is none",
        ),
    ],
)
def test_manifests_that_cannot_be_stored(tmp_path: Path, manifest: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        write_results(tmp_path / "out", ROWS, manifest)
    assert str(caught.value) == line
    assert names(tmp_path) == []


@pytest.mark.parametrize("failing_call", [1, 2, 3])
def test_a_full_disk_leaves_earlier_results_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    write_results(tmp_path, ROWS[:1], MANIFEST)
    calls = 0
    synced = os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing_call + 1:  # the first call is that of check_writable
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError) as caught:
            write_results(tmp_path, ROWS, MANIFEST)
    assert caught.value.errno == errno.ENOSPC
    assert len(read_results(tmp_path)[0]) == 1
    assert names(tmp_path) == ["manifest.json", "results.csv", "results.parquet"]


def test_a_crash_between_two_files_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_results(tmp_path, ROWS[:1], MANIFEST)
    replaced = os.replace

    def only_tables(source: str, target: Path) -> None:
        if Path(target).name == records.MANIFEST:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replaced(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", only_tables)
        with pytest.raises(OSError, match=r"manifest\.json"):
            write_results(tmp_path, ROWS, MANIFEST)
    with pytest.raises(BadResults, match=r"results\.parquet does not match its sha256"):
        read_results(tmp_path)
    assert names(tmp_path) == ["manifest.json", "results.csv", "results.parquet"]


def test_a_file_in_the_place_of_the_results_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(NotWritable, match=r"it is a file, not a folder$"):
        write_results(tmp_path / "out", ROWS, MANIFEST)
    assert (tmp_path / "out").read_text() == "x"


# Results that must be refused


def refused(folder: Path) -> str:
    with pytest.raises(BadResults) as caught:
        read_results(folder)
    assert isinstance(caught.value, ValueError)
    line = str(caught.value)
    assert line.startswith(f"{folder}: ") and "\n" not in line
    return line.removeprefix(f"{folder}: ")


def edit(folder: Path, **changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_results(tmp_path / "out", ROWS, MANIFEST)
    return tmp_path / "out"


def test_what_is_no_results_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "no such folder"
    (tmp_path / "file").write_text("x")
    assert refused(tmp_path / "file") == "not a folder"
    assert refused(tmp_path) == "no manifest.json: not a results folder"
    (tmp_path / "manifest.json").mkdir()
    assert refused(tmp_path).startswith("cannot read manifest.json: ")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "manifest.json is not valid JSON"),
        (b'{"schema_version": 1', "manifest.json is not valid JSON"),
        (b"\xff\xfe", "manifest.json is not valid JSON"),
        (b"[" * 100_000, "manifest.json is not valid JSON"),
        (b"[]", "manifest.json has no schema_version: not a results folder"),
        (b"{}", "manifest.json has no schema_version: not a results folder"),
        (b'{"schema_version": "1"}', "manifest.json has no schema_version: not a results folder"),
        (b'{"schema_version": true}', "manifest.json has no schema_version: not a results folder"),
        (b'{"schema_version": 0}', "manifest.json has no schema_version: not a results folder"),
        (b'{"schema_version": 2}', "written by a newer version (schema 2, this one reads up to 1): upgrade"),
        (b'{"schema_version": 1}', "manifest.json has no sha256 of results.parquet"),
        (b'{"schema_version": 1, "sha256": []}', "manifest.json has no sha256 of results.parquet"),
    ],
)
def test_bad_manifests(results: Path, content: bytes, line: str) -> None:
    (results / "manifest.json").write_bytes(content)
    assert refused(results) == line


@pytest.mark.parametrize("name", ["results.parquet", "results.csv"])
def test_tables_that_are_missing_or_changed(results: Path, name: str) -> None:
    content = (results / name).read_bytes()
    for changed in (content[:-1], b"", content + b"\n", bytes([content[0] ^ 1]) + content[1:]):
        (results / name).write_bytes(changed)
        assert refused(results) == f"{name} does not match its sha256 in manifest.json: changed or damaged"
    (results / name).unlink()
    assert refused(results) == f"{name} is missing"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"not Parquet at all"])
def test_a_table_whose_hash_matches_but_that_is_no_parquet(results: Path, content: bytes) -> None:
    (results / "results.parquet").write_bytes(content)
    digests = json.loads((results / "manifest.json").read_text())["sha256"]
    edit(results, sha256=digests | {"results.parquet": hashlib.sha256(content).hexdigest()})
    assert refused(results) == "results.parquet is not a readable Parquet file"


def test_nothing_is_pickled() -> None:
    assert "import pickle" not in Path(records.__file__).read_text(encoding="utf-8")
