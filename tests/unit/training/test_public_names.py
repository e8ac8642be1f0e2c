"""The names that a training script imports, and their cost."""

import subprocess
import sys


def test_importing_the_library_imports_neither_torch_nor_numpy_nor_mlflow():
    code = (
        "import sys, toolkit.training\n"
        "print([m for m in ('torch', 'numpy', 'mlflow', 'click', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
