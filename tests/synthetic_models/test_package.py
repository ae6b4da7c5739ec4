"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys

import synthetic_models


def test_every_public_name_exists() -> None:
    assert sorted(synthetic_models.__all__) == sorted(set(synthetic_models.__all__))
    assert all(hasattr(synthetic_models, name) for name in synthetic_models.__all__)


def test_importing_it_loads_no_heavy_package_and_prints_nothing() -> None:
    code = (
        "import sys, synthetic_models; "
        "heavy = {'torch', 'numpy', 'pandas', 'cupy', 'threading', 'asyncio'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
