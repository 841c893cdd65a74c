"""Where worker processes come from: a process that has loaded the engine once and forks a worker whenever it is asked.

`python -m faults.nursery <socket>` takes a request per message, with the descriptors of the newcomer's standard input,
output and error, and says who was born and who died, and how. A worker of it is a process like any other, with its own
connections, threads and luck; it merely did not have to read the code from disk.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from faults import worker
from faults.report import ROOT

BIGGEST = 1 << 16


def fork(request: dict[str, Any], streams: list[int], inherited: list[int]) -> int:
    """The child becomes the worker and never returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        for descriptor in (*streams, *inherited):
            os.close(descriptor)
        os.environ.update(request["environment"])
        worker.main(request["task"])
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(line: socket.socket) -> None:
    ear, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([line, ear], [], [])
        if ear in ready:
            os.read(ear, BIGGEST)
            for pid, code in iter(reap, None):
                line.send(json.dumps({"died": pid, "code": code}).encode())
        if line in ready:
            message, streams, _, _ = socket.recv_fds(line, BIGGEST, 3)
            if not message:
                return
            pid = fork(json.loads(message), streams, [line.fileno(), ear, bell])
            for stream in streams:
                os.close(stream)
            line.send(json.dumps({"born": pid}).encode())


def reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


class Nursery:
    """The harness's end. Births are asked for one at a time; deaths are heard whenever they happen."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
        )
        theirs.close()
        self._births: list[int] = []
        self._deaths: dict[int, int] = {}
        self._heard = threading.Condition()
        self._asking = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def bear(self, task: dict[str, Any], environment: dict[str, str], streams: list[int]) -> int:
        request = json.dumps({"task": task, "environment": environment}).encode()
        with self._asking, self._heard:
            socket.send_fds(self._line, [request], streams)
            assert self._heard.wait_for(lambda: self._births, timeout=60), "the nursery does not answer"
            pid = self._births.pop()
            self._deaths.pop(pid, None)  # of an earlier bearer of the number
            return pid

    def code(self, pid: int) -> int | None:
        """How this worker ended, None while it lives."""
        with self._heard:
            return self._deaths.get(pid)

    def wait(self, pid: int, patience: float) -> int:
        with self._heard:
            assert self._heard.wait_for(lambda: pid in self._deaths, patience), f"worker {pid} does not end"
            return self._deaths[pid]

    def end(self) -> None:
        self._line.close()
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        while True:
            try:
                message = self._line.recv(BIGGEST)
            except OSError:
                return
            if not message:
                return
            told = json.loads(message)
            with self._heard:
                if "born" in told:
                    self._births.append(told["born"])
                else:
                    self._deaths[told["died"]] = told["code"]
                self._heard.notify_all()


_shared: Nursery | None = None


def shared() -> Nursery:
    """One for the whole run, opened when first asked for."""
    global _shared
    if _shared is None:
        _shared = Nursery()
    return _shared


def close_shared() -> None:
    global _shared
    if _shared is not None:
        _shared.end()
        _shared = None


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
