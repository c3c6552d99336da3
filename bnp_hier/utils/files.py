"""Atomic file writes, used for all files that the package writes."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_text"]

_HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node())[:40]
_MARK = ".bnp-hier-"
_DAY = 86400.0


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: yield the path of a draft in the same folder, which replaces the file when the block ends.

    Until the draft is complete and flushed to disk, the file is unchanged; if the block raises, the draft is removed and the
    file remains as it was. Drafts left behind by killed processes are removed by the next write to their folder. Missing
    folders are created, symbolic links are followed, and a file that is replaced keeps its permissions. A path that exists but
    is not a regular file, such as a pipe or ``/dev/stdout``, is written to directly.

    Parameters
    ----------
    path
        The file.

    Yields
    ------
    draft
        Path to write to; it has the suffix of the file.

    Raises
    ------
    OSError
        If the path is a folder, or the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder, expected a file name")
    if target.exists() and not target.is_file():
        yield target
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target.parent)
    suffix = target.suffix if len(target.suffix) < 16 else ""
    draft = target.parent / f"{_MARK}{_HOST}-{os.getpid()}-{uuid.uuid4().hex}.part{suffix}"
    try:
        yield draft
        with draft.open("rb+") as written:
            os.fsync(written.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    except OSError as error:  # which names the draft, not the file that was asked for
        error.args = tuple(arg.replace(str(draft), os.fspath(path)) if isinstance(arg, str) else arg for arg in error.args)
        if error.filename == str(draft):
            error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write text in UTF-8 with `replacing`; characters that cannot be encoded become question marks."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")
    return Path(path)


def _remove_abandoned(folder: Path) -> None:
    """Remove drafts of processes on this machine that have ended, and all drafts older than a day."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.name.startswith(_MARK) and ".part" in entry.name]
    for entry in found:
        host, _, rest = entry.name.removeprefix(_MARK).partition("-")
        process = rest.partition("-")[0]
        try:
            ended = host == _HOST and process.isdigit() and not _runs(int(process))
            if ended or time.time() - entry.stat().st_mtime > _DAY:
                os.unlink(entry.path)
        except OSError:  # already removed, or owned by another user
            continue


def _runs(process: int) -> bool:
    """Whether a process on this machine is running; always True on non-POSIX systems, where this is not checked."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
