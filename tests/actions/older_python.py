"""A Python 3.8, where this machine has one: on the path, or among those of pyenv."""

import os
import shutil
import subprocess
from pathlib import Path


def find(version):
    """Return the path of a Python of this version, None without one; a shim of pyenv may be there without it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python{version}")]
    for path in filter(None, candidates):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if told.startswith(f"Python {version}."):
            return str(path)
    return None


PYTHON_38 = find("3.8")
