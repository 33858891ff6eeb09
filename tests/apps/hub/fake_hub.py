"""Server on loopback with the calls of the Hugging Face Hub that push and pull use."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN, READER = "hf_writer", "hf_reader"
LFS_SUFFIXES = (".safetensors", ".onnx", ".mp4")


@dataclass
class Repo:
    """Files of every commit; the last one is `main`."""

    private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    def add(self, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(f"{len(self.commits)}{sorted(files)}".encode()).hexdigest()
        self.commits.append((name, files))
        return name

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        if revision == "main":
            return self.commits[-1]
        return next((each for each in self.commits if each[0] == revision), None)

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][1]


class FakeHub:
    """Repositories by "models/me/x" or "datasets/me/x", and faults that a test injects."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}  # of LFS
        self.calls: list[str] = []
        self.stall: str | None = None  # download of this path stops half way ...
        self.stalled, self.go_on = threading.Event(), threading.Event()  # ... and says so, until it may go on
        self.endpoint = ""


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self._body()
        path = self._path()
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            header = json.loads(body)["content"].split("---")[1]
            self._json(
                {"errors": [] if isinstance(yaml.safe_load(header), dict) else [{"message": "no mapping"}]}
            )
        elif found := re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/preupload/main", path):
            self._preupload(found[1], json.loads(body))
        elif found := re.fullmatch(r"/(?:datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch", path):
            self._lfs(json.loads(body))
        elif found := re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/commit/main", path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._refuse(404, "EntryNotFound", f"unknown call {path}")

    def do_PUT(self) -> None:
        body = self._body()
        oid = self._path().rpartition("/")[2]
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self._json({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._path()
        if found := re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self._info(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/tree/([^/]+)", path):
            self._tree(found[1], found[2])
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(("datasets/" if found[1] else "models/") + found[2], found[3], found[4])
        else:
            self._refuse(404, "EntryNotFound", f"unknown call {path}")

    def _body(self) -> bytes:
        """Body of the request, of known length or in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while length := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.hub.calls.append(f"{self.command} {path}")
        return path

    def _may(self, write: bool) -> bool:
        """True for a token that may read, or write; otherwise answers the request with an error."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (TOKEN, READER):
            self._refuse(401, None, "Invalid username or password.")
            return False
        if write and token == READER:
            self._refuse(403, None, "This token cannot write.")
            return False
        return True

    def _repo(self, key: str, revision: str = "main") -> tuple[Repo, str, dict[str, bytes]] | None:
        if not self._may(write=False):
            return None
        repo = self.hub.repos.get(key)
        if repo is None:
            self._refuse(404, "RepoNotFound", "Repository not found")
            return None
        if (at := repo.at(revision)) is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repo, *at

    def _create(self, body: dict[str, Any]) -> None:
        if not self._may(write=True):
            return
        key = f"{body.get('type', 'model')}s/{body['organization']}/{body['name']}"
        url = f"{self.hub.endpoint}/{key.removeprefix('models/')}"
        if key in self.hub.repos:
            self._json({"url": url, "error": "You already created this repo"}, status=409)
            return
        self.hub.repos[key] = repo = Repo(private=body.get("visibility") == "private")
        repo.add({".gitattributes": b"*.safetensors filter=lfs\n"})
        self._json({"url": url})

    def _preupload(self, key: str, body: dict[str, Any]) -> None:
        if self._repo(key) is None:
            return
        modes = {f["path"]: "lfs" if f["path"].endswith(LFS_SUFFIXES) else "regular" for f in body["files"]}
        files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
        self._json({"files": files})

    def _lfs(self, body: dict[str, Any]) -> None:
        objects = [
            each
            if each["oid"] in self.hub.objects
            else each | {"actions": {"upload": {"href": f"{self.hub.endpoint}/upload/{each['oid']}"}}}
            for each in body["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, key: str, lines: list[dict[str, Any]]) -> None:
        if not self._may(write=True) or (found := self._repo(key)) is None:
            return
        files = dict(found[2])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        name = found[0].add(files)
        url = f"{self.hub.endpoint}/{key.removeprefix('models/')}/commit/{name}"
        self._json({"commitUrl": url, "commitOid": name})

    def _info(self, key: str, revision: str) -> None:
        if (found := self._repo(key, revision)) is not None:
            repo, name, files = found
            siblings = [{"rfilename": path} for path in files]
            who = key.partition("/")[2]
            self._json({"id": who, "_id": "0", "sha": name, "private": repo.private, "siblings": siblings})

    def _tree(self, key: str, revision: str) -> None:
        if (found := self._repo(key, revision)) is None:
            return
        entries = []
        for path, data in found[2].items():
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
            if path.endswith(LFS_SUFFIXES):
                entry["lfs"] = {
                    "oid": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 130,
                }
            entries.append(entry)
        self._json(entries)

    def _resolve(self, key: str, revision: str, path: str) -> None:
        if (found := self._repo(key, revision)) is None:
            return
        if (data := found[2].get(path)) is None:
            self._refuse(404, "EntryNotFound", f"{path} does not exist")
            return
        lfs = path.endswith(LFS_SUFFIXES)
        tag = hashlib.sha256(data).hexdigest() if lfs else _blob(data)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{tag}"')
        self.send_header("X-Repo-Commit", found[1])
        self.end_headers()
        if self.command == "HEAD":
            return
        if path == self.hub.stall:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.go_on.wait(60)
            self.close_connection = True
            return
        self.wfile.write(data)

    def _json(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str | None, message: str) -> None:
        data = json.dumps({"error": message}).encode()
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _blob(data: bytes) -> str:
    """Git's name of a blob."""
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
