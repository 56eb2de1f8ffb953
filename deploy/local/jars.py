"""Kafka's jars: pinned by coordinate and SHA-256, downloaded once, kept in a cache that any number of starts share.

The committed lock names every jar, so a start resolves nothing. It was written by resolving the two coordinates below
(`python -m deploy.local.jars`), which is needed only to move to another version of Kafka.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.errors import StackError, from_os_error
from deploy.local.progress import Progress, progress

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext

KAFKA = "org.apache.kafka:kafka_2.13:4.2.0"
# Kafka logs through slf4j 1.7, whose binding to log4j 2 its own dependencies leave out. The version is that of the
# log4j-core among them.
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3"

LOCK = Path(__file__).with_name("jars.lock")
CACHE_VARIABLE = "RUNG_CACHE_DIR"
REPOSITORY_VARIABLE = "RUNG_MAVEN_REPOSITORY"

# Enough to hide the latency of one request behind the others; the repository limits clients that ask for much more.
_PARALLEL_DOWNLOADS = 6
_REQUEST_TIMEOUT_SECONDS = 20
_STAGING = ".download-"


@dataclass(frozen=True)
class Jar:
    """One pinned jar: `group:artifact:version`, its SHA-256 in hex and its size in bytes."""

    coordinate: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """The name in the cache; with the hash, so that a changed lock never meets an old file."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}-{self.sha256[:12]}.jar"

    def is_intact(self, path: Path) -> bool:
        """Say whether the file is this jar, byte for byte."""
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except FileNotFoundError:
            return False


def locked_jars(lock: Path = LOCK) -> list[Jar]:
    """Read a lock: all jars of the class path."""
    lines = (line.split() for line in lock.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return [Jar(coordinate, sha256, int(size)) for coordinate, sha256, size in lines]


def cache_directory() -> Path:
    """`RUNG_CACHE_DIR`, or `rung` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rung"


def class_path(
    cache: Path | None = None,
    repository: str | None = None,
    go_on: Callable[[], None] = lambda: None,
    *,
    lock: Path = LOCK,
    of: str = "Apache Kafka",
) -> list[Path]:
    """Return the paths of all jars, downloading what the cache does not hold.

    With a full cache this reads files only and never the network.

    Args:
        cache: the cache folder; see `cache_directory`.
        repository: the base address of the Maven repository; `RUNG_MAVEN_REPOSITORY` or Maven Central if None.
        go_on: called now and then by any thread; what it raises ends a download.
        lock: which jars.
        of: whose jars they are, for people.

    Raises:
        StackError: the cache cannot be written, or a jar cannot be downloaded or is not the pinned one.
    """
    folder = (cache or cache_directory()) / "jars"
    jars = locked_jars(lock)
    if missing := _missing(jars, folder, of):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _only_one_download(folder):
                # Somebody else may have downloaded them while this start waited for its turn.
                missing = _missing(jars, folder, of)
                if missing:
                    _download(missing, folder, repository or os.environ.get(REPOSITORY_VARIABLE), go_on, of)
        except OSError as error:
            raise from_os_error(error, f"keep {of}'s jars (set {CACHE_VARIABLE} to another folder)", folder) from error
    return [folder / jar.file_name for jar in jars]


def _missing(jars: list[Jar], folder: Path, of: str) -> list[Jar]:
    try:
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            intact = pool.map(lambda jar: jar.is_intact(folder / jar.file_name), jars)
            return [jar for jar, good in zip(jars, intact, strict=True) if not good]
    except OSError as error:
        raise from_os_error(error, f"read {of}'s jars (set {CACHE_VARIABLE} to another folder)", folder) from error


@contextlib.contextmanager
def _only_one_download(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(jars: list[Jar], folder: Path, repository: str | None, go_on: Callable[[], None], of: str) -> None:
    """Fetch jars into a folder beside their place, check each, and move it in; a broken download leaves nothing."""
    for broken in folder.glob(f"{_STAGING}*"):
        # Left by a download that was killed: this one alone holds the lock.
        shutil.rmtree(broken, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder))
    pool = ThreadPoolExecutor(_PARALLEL_DOWNLOADS)
    try:
        total = sum(jar.size for jar in jars)
        with progress(f"Downloading {of}, once", total) as shown:
            context = _maven(staging, repository, shown, go_on)
            tasks = [pool.submit(_fetch, context, jar, folder, of) for jar in jars]
            for task in as_completed(tasks):
                go_on()
                task.result()
    finally:
        # The first failure says enough: what has not begun is dropped.
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(staging, ignore_errors=True)


def _maven(staging: Path, repository: str | None, shown: Progress, go_on: Callable[[], None]) -> MavenContext:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise StackError('The package jgo is missing: pip install "rung[embedded]".') from error

    def add(size: int) -> None:
        go_on()
        shown.add(size)

    remotes = {"configured": repository.rstrip("/")} if repository else None
    resolver = PythonResolver(progress_callback=lambda _name, _size: contextlib.nullcontext(add))
    return MavenContext(
        resolver=resolver, repo_cache=staging, local_repos=[], remote_repos=remotes, timeout=_REQUEST_TIMEOUT_SECONDS
    )


def _fetch(context: MavenContext, jar: Jar, folder: Path, of: str) -> None:
    import requests

    group, artifact, version = jar.coordinate.split(":")
    try:
        path = context.project(group, artifact).at_version(version).artifact().resolve()
    except requests.RequestException as error:
        # requests' errors are OSErrors too, but say nothing about the disk.
        raise StackError(
            f"{of}'s jars could not be downloaded ({jar.coordinate}: {_reason(error)}); "
            f"check the network, or set {REPOSITORY_VARIABLE} to a mirror of Maven Central."
        ) from error
    except RuntimeError as error:
        raise StackError(
            f"The Maven repository does not serve {jar.coordinate}; set {REPOSITORY_VARIABLE} to a full mirror."
        ) from error
    if not jar.is_intact(path):
        raise StackError(f"The download of {jar.coordinate} is not the pinned file (SHA-256 differs); try again.")
    path.replace(folder / jar.file_name)


def _reason(error: Exception) -> str:
    """The innermost cause in a few words: requests wraps urllib3, which wraps the socket's error."""
    cause: BaseException = error
    while nested := cause.__cause__ or cause.__context__:
        cause = nested
    return getattr(cause, "strerror", None) or type(cause).__name__


def write_lock() -> None:
    """Resolve the two coordinates and pin what they need; a maintainer runs this to move to another Kafka."""
    with maven() as context:
        # Kafka alone: resolved together with the binding, log4j's own managed versions would replace Kafka's.
        artifacts = needed_by(context, KAFKA)
        group, name, version = LOGGING.split(":")
        artifacts.append(context.project(group, name).at_version(version).artifact())
        pin(artifacts, LOCK, "deploy.local.jars")


@contextlib.contextmanager
def maven() -> Iterator[MavenContext]:
    """What resolves coordinates, with a cache of its own that is dropped afterwards."""
    from jgo.maven import MavenContext, PythonResolver

    repository = os.environ.get(REPOSITORY_VARIABLE)
    remotes = {"configured": repository.rstrip("/")} if repository else None
    with tempfile.TemporaryDirectory() as folder:
        yield MavenContext(resolver=PythonResolver(), repo_cache=Path(folder), local_repos=[], remote_repos=remotes)


def needed_by(context: MavenContext, coordinate: str) -> list[Artifact]:
    """The artifact of a coordinate and those that it needs at run time."""
    direct, transitive = context.resolver.resolve([context.create_dependency(coordinate)])
    artifacts = [dependency.artifact for dependency in direct]
    return artifacts + [dependency.artifact for dependency in transitive if dependency.scope in ("compile", "runtime")]


def pin(artifacts: Iterable[Artifact], lock: Path, module: str) -> None:
    """Download artifacts and write the lock of exactly these; `module` says in it who wrote it."""
    lines = []
    for artifact in artifacts:
        content = artifact.resolve().read_bytes()
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        lines.append(f"{coordinate} {hashlib.sha256(content).hexdigest()} {len(content)}\n")
    header = f"# Written by `python -m {module}`: coordinate, SHA-256 of the jar, size in bytes.\n"
    lock.write_text(header + "".join(sorted(lines)), "utf-8")


if __name__ == "__main__":
    write_lock()
