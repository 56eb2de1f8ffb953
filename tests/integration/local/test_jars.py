"""Kafka's jars: pinned, checked, downloaded once by whoever comes first."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.local import jars, ports
from deploy.local.errors import StackError


@dataclass
class Repository:
    """A Maven repository on this machine; it counts the requests for each file."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def repository() -> Iterator[Repository]:
    """An empty repository."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests[self.path] += 1
            content = served.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer((ports.HOST, 0), Handler) as server:
        served = Repository(f"http://{ports.HOST}:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield served
        server.shutdown()
        thread.join()


def path_of(jar: jars.Jar) -> str:
    """Where a Maven repository has a jar."""
    group, artifact, version = jar.coordinate.split(":")
    return f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


@pytest.fixture
def full_repository(repository: Repository) -> Repository:
    """A repository with all jars, taken from this machine's cache."""
    for jar, path in zip(jars.locked_jars(), jars.class_path(), strict=True):
        repository.files[path_of(jar)] = path.read_bytes()
    return repository


def test_lock_pins_the_coordinates_that_the_code_names() -> None:
    """The lock was written for this Kafka, and Kafka's own parts have one version."""
    locked = {jar.coordinate for jar in jars.locked_jars()}
    assert jars.KAFKA in locked
    assert jars.LOGGING in locked
    version = jars.KAFKA.rpartition(":")[2]
    assert {c.rpartition(":")[2] for c in locked if c.startswith("org.apache.kafka:")} == {version}


def test_refused_download_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    """Without a network the error names the cause and the setting, and the cache stays empty, or becomes so."""
    (tmp_path / "jars" / ".download-of-a-killed-process").mkdir(parents=True)
    closed = f"http://{ports.HOST}:{ports.free_port()}"
    with pytest.raises(StackError, match=r"could not be downloaded .*[Cc]onnection refused.*RUNG_MAVEN_REPOSITORY"):
        jars.class_path(tmp_path, closed)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_repository_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`RUNG_MAVEN_REPOSITORY` and `RUNG_CACHE_DIR` say where from and where to."""
    monkeypatch.setenv("RUNG_MAVEN_REPOSITORY", f"http://{ports.HOST}:{ports.free_port()}")
    monkeypatch.setenv("RUNG_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(StackError, match="could not be downloaded"):
        jars.class_path()
    assert (tmp_path / "cache" / "jars").is_dir()


# jgo leaves the answer of a missing file open; collected here, so that the warning does not meet another test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_incomplete_repository_is_an_error(repository: Repository, tmp_path: Path) -> None:
    """A mirror without a jar is named as such."""
    with pytest.raises(StackError, match=r"does not serve .*:.*; set RUNG_MAVEN_REPOSITORY") as raised:
        jars.class_path(tmp_path, repository.url)
    del raised
    gc.collect()


def test_other_bytes_are_refused(full_repository: Repository, tmp_path: Path) -> None:
    """A jar that is not the pinned one never gets into the cache."""
    jar = jars.locked_jars()[7]
    full_repository.files[path_of(jar)] = bytes(jar.size)
    with pytest.raises(StackError, match=f"download of {jar.coordinate} is not the pinned file"):
        jars.class_path(tmp_path, full_repository.url)
    assert not (tmp_path / "jars" / jar.file_name).exists()


def test_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A file in the place of the cache folder gives one sentence with the setting's name."""
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(StackError, match="RUNG_CACHE_DIR"):
        jars.class_path(tmp_path / "cache", "http://unused.invalid")


def test_full_cache_needs_no_network_and_heals_alone(full_repository: Repository, tmp_path: Path) -> None:
    """A second start asks for nothing, and a jar that was damaged meanwhile is fetched again, alone."""
    paths = jars.class_path(tmp_path, full_repository.url)
    full_repository.requests.clear()
    assert jars.class_path(tmp_path, full_repository.url) == paths
    assert not full_repository.requests
    damaged = paths[3]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert jars.class_path(tmp_path, full_repository.url) == paths
    assert [path for path in full_repository.requests if path.endswith(".jar")] == [path_of(jars.locked_jars()[3])]


def test_starts_at_the_same_time_download_once(full_repository: Repository, tmp_path: Path) -> None:
    """Three processes on one empty cache: each ends with all jars, and each jar was asked for once."""
    code = (
        "import pathlib, sys\n"
        "from deploy.local import jars\n"
        "print(len(jars.class_path(pathlib.Path(sys.argv[1]), sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path), full_repository.url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    outputs = [process.communicate(timeout=60) for process in processes]
    locked = jars.locked_jars()
    assert [out.strip() for out, _ in outputs] == [str(len(locked)).encode()] * 3, outputs
    assert [full_repository.requests[path_of(jar)] for jar in locked] == [1] * len(locked)
    # One told about its progress, in plain lines, since nothing here is a terminal.
    told = [err.decode() for _, err in outputs if err]
    assert len(told) == 1
    assert "Downloading Apache Kafka, once: 45 MB" in told[0]
    assert told[0].rstrip().endswith("100 %")
