"""The host's Python, copied into machines as /opt/python.

The wheels a test machine has (torch above all) fit the host's Python, not the machine's own.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from toolkit.local.machines.errors import MachineError

TARGET = Path("opt/python")
# Each interpreter must be able to do this in the machine.
CHECK = "import ssl, ctypes, sqlite3, bz2, lzma, zlib, hashlib, uuid, venv, multiprocessing"
_UNUSED_PACKAGES = ("test", "tests", "idlelib", "idle_test", "turtledemo", "tkinter", "lib2to3")
_UNUSED_PATTERNS = (
    "site-packages",
    "dist-packages",
    "config-*",
    "EXTERNALLY-MANAGED",
    "*.a",
    "_tkinter.*.so",
    "nis.*.so",
    "*.opt-1.pyc",
    "*.opt-2.pyc",
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation, and the folders in which pip may be.

    Debian's own looks for modules elsewhere than all others, and has libpython inside.
    """

    prefix: Path  # the folder below which it was installed
    version: str  # "3.11"
    pip_places: tuple[Path, ...]
    debian: bool = False

    @classmethod
    def of_this_process(cls) -> Interpreter:
        """Describe our interpreter, also through a virtual environment."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        prefix = Path(sys.base_prefix)
        places = (
            prefix / "lib" / f"python{version}" / "site-packages",
            Path(sysconfig.get_path("purelib")),
            Path("/usr/lib/python3/dist-packages"),
        )
        return cls(prefix, version, places, debian=prefix == Path("/usr"))

    @property
    def identity(self) -> str:
        """Return the facts on which the copy depends: version and origin."""
        modified_at = int((self._library / "os.py").stat().st_mtime)
        return f"{self.version} {self.prefix} {modified_at}"

    def copy(self, root: Path) -> None:
        """Copy the interpreter, its standard library and pip to `root`/opt/python.

        Replaces an older copy. Raises MachineError without pip.
        """
        target = root / TARGET
        shutil.rmtree(target, ignore_errors=True)
        (target / "bin").mkdir(parents=True)
        name = f"python{self.version}"
        shutil.copy2((self.prefix / "bin" / name).resolve(), target / "bin" / name)
        for link in ("python3", "python"):
            (target / "bin" / link).symlink_to(name)
        library = target / "lib" / name
        unused_names = shutil.ignore_patterns(*_UNUSED_PACKAGES, *_UNUSED_PATTERNS)
        shutil.copytree(
            self._library,
            library,
            symlinks=True,
            ignore=unused_names,
            ignore_dangling_symlinks=True,
        )
        debian_packages = target / "lib" / "python3" / "dist-packages"
        self._copy_pip(debian_packages if self.debian else library / "site-packages")
        self._copy_shared_library(root)

    @property
    def _library(self) -> Path:
        return self.prefix / "lib" / f"python{self.version}"

    def _copy_pip(self, target: Path) -> None:
        """Copy pip from the first folder that has it.

        Raises MachineError without any.
        """
        target.mkdir(parents=True, exist_ok=True)
        for place in self.pip_places:
            if (place / "pip" / "__main__.py").is_file():
                shutil.copytree(place / "pip", target / "pip")
                for info in place.glob("pip-*.dist-info"):
                    shutil.copytree(info, target / info.name)
                return
        raise MachineError(
            f"no pip beside {self.prefix}: install python3-pip, or `python -m ensurepip`"
        )

    def _copy_shared_library(self, root: Path) -> None:
        """Copy this installation's libpython, if any, and inform the loader."""
        libraries = sorted((self.prefix / "lib").glob(f"libpython{self.version}*.so*"))
        if self.debian or not libraries:
            return
        for path in libraries:
            shutil.copy2(path, root / TARGET / "lib" / path.name, follow_symlinks=False)
        loader = root / "etc/ld.so.conf.d/toolkit-python.conf"
        loader.write_text(f"/{TARGET}/lib\n")
