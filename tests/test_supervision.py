"""What becomes of a server with every bad habit when the profiler, its supervisor or both are killed, interrupted or short of something."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from calibration.measure import server as server_module
from calibration.measure.server import Server, free_port, listens_below
from calibration.measure.supervisor import descendants
from startup_model.errors import ConfigError

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")

SERVER = r"""
import ctypes, os, pathlib, signal, subprocess, sys, threading, time

pids, role = sys.argv[1:]


def note():
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")


def blank():  # as setproctitle does: arguments and environment are gone
    fields = pathlib.Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for begin, end in ((fields[45], fields[46]), (fields[47], fields[48])):
            memory.seek(int(begin))
            memory.write(bytes(int(end) - int(begin)))


def start(role, **options):
    return subprocess.Popen([sys.executable, "-I", "-S", __file__, pids, role], **options)


for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if role == "server":
    note()
    start("worker", start_new_session=True)
    start("daemon", env={}).wait()
    start("headless")
elif role == "worker":
    blank()
    note()
elif role == "daemon":
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    blank()
    note()
    os.closerange(0, 3)
elif role == "headless":  # its first thread has ended, another goes on
    threading.Thread(target=lambda: (time.sleep(0.05), note(), time.sleep(900))).start()
    ctypes.CDLL(None).pthread_exit(None)
time.sleep(900)
"""
PROCESSES = 4

PROFILER = """
import os, sys, time
from calibration.measure.server import Server

words, forks, temporary = sys.argv[1:-2], sys.argv[-2] == "forks", sys.argv[-1]
with Server(words, grace_s=0.2, temporary=temporary) as server:
    copy = os.fork() if forks else -1
    if copy == 0:
        os.closerange(0, 3)
        time.sleep(900)
    print(server._supervisor.pid, copy, flush=True)
    while server.read(0.5) is not None:
        pass
print("stopped", server.killed)
"""


class Interrupted(BaseException):
    """What a handler of a signal raises."""


@pytest.fixture
def words(tmp_path: Path) -> Iterator[list[str]]:
    """The command of the server; whatever it leaves behind fails the test."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    yield [sys.executable, "-I", "-S", str(script), str(tmp_path / "pids"), "server"]
    assert left(tmp_path) == []


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that raises Interrupted."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(request.param, interrupt)
    yield int(request.param)
    assert signal.signal(request.param, before) is interrupt


def lives(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] != b"Z" or int(fields[17]) > 1


def left(tmp_path: Path) -> list[int]:
    path = tmp_path / "pids"
    return [pid for pid in map(int, path.read_text().split()) if lives(pid)] if path.exists() else []


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def wait_for_all(tmp_path: Path) -> None:
    wait_until(lambda: len(left(tmp_path)) == PROCESSES)


def read_all(server: Server) -> bytes:
    found = b""
    while (data := server.read(0.5)) is not None:
        found += data
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run(program: str, *arguments: str, prefix: str = "") -> str:
    """What a Python program prints."""
    command = [sys.executable, "-c", program, *arguments]
    if prefix:
        command = ["sh", "-c", f'{prefix}; exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- killed -------------------------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """A profiler at work, and the processes between it and its server."""

    profiler: subprocess.Popen[str]
    watcher: int
    supervisor: int
    copy: int
    """A process that the profiler has forked; -1: none."""

    def send(self, names: tuple[str, ...], number: int) -> None:
        pids = {"profiler": self.profiler.pid, "watcher": self.watcher, "supervisor": self.supervisor}
        for name in names:
            os.kill(pids[name], number)


def play(words: list[str], tmp_path: Path, *, forks: bool = False) -> Scene:
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    command = [sys.executable, "-c", PROFILER, *words, "forks" if forks else "", str(tmp_path / "temporary")]
    profiler = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert profiler.stdout is not None
    watcher, copy = map(int, profiler.stdout.readline().split())
    wait_for_all(tmp_path)
    (supervisor,) = Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()
    return Scene(profiler, watcher, int(supervisor), copy)


@pytest.mark.parametrize(
    "killed",
    [
        ("profiler",),
        ("watcher",),
        ("supervisor",),
        ("profiler", "watcher"),
        ("profiler", "supervisor"),
        ("watcher", "supervisor"),
    ],
    ids=" and ".join,
)
def test_nothing_is_left_of_the_server_when_any_two_are_killed(
    words: list[str], tmp_path: Path, killed: tuple[str, ...]
) -> None:
    scene = play(words, tmp_path)
    scene.send(killed, signal.SIGKILL)
    wait_until(lambda: not left(tmp_path))
    wait_until(lambda: not lives(scene.watcher) and not lives(scene.supervisor))
    said, _ = scene.profiler.communicate(timeout=30)
    # The first process dies with its supervisor; the others have to be killed.
    assert ("profiler" in killed) == (said == "")
    assert "profiler" in killed or int(said.removeprefix("stopped ")) >= PROCESSES - 1
    assert (tmp_path / "temporary").exists() == ("profiler" not in killed)


def test_a_copy_of_the_profiler_does_not_keep_the_server_alive(words: list[str], tmp_path: Path) -> None:
    scene = play(words, tmp_path, forks=True)
    try:
        scene.send(("profiler",), signal.SIGKILL)
        wait_until(lambda: not left(tmp_path))
        wait_until(lambda: not (tmp_path / "temporary").exists())
        assert lives(scene.copy)
    finally:
        os.kill(scene.copy, signal.SIGKILL)
        scene.profiler.communicate(timeout=30)


@pytest.mark.parametrize("hangs", ["watcher", "supervisor"])
def test_a_supervisor_that_hangs_is_done_without(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    monkeypatch.setattr(server_module, "_AFTER_GRACE_S", 0.5)
    monkeypatch.setattr(server_module, "_AFTER_REPORT_S", 0.1)
    with Server(words, grace_s=0.2) as server:
        wait_for_all(tmp_path)
        assert server._supervisor is not None
        watcher = server._supervisor.pid
        (supervisor,) = Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()
        os.kill(watcher if hangs == "watcher" else int(supervisor), signal.SIGSTOP)
    assert server.killed >= PROCESSES
    assert not lives(watcher)
    wait_until(lambda: not lives(int(supervisor)))
    assert left(tmp_path) == []


def test_a_chain_of_forks_is_caught(tmp_path: Path) -> None:
    """Each process forks and ends, in a session of its own: none is there when it is looked up."""
    chain = (
        "import os, time\nend = time.monotonic() + 60\nwhile time.monotonic() < end:\n    if os.fork(): os._exit(0)\n    os.setsid()\n"
        f"    open({str(tmp_path / 'pids')!r}, 'w').write(str(os.getpid()))\n"
    )
    start = f"{shlex.quote(sys.executable)} -c {shlex.quote(chain)} & sleep 900"
    with Server(["sh", "-c", start], grace_s=0.2) as server:
        wait_until((tmp_path / "pids").exists)
    assert server.killed >= 1
    stamp = (tmp_path / "pids").stat().st_mtime_ns
    time.sleep(0.2)
    assert (tmp_path / "pids").stat().st_mtime_ns == stamp


def test_what_the_server_leaves_is_reaped() -> None:
    """This program adopts what its supervisors have not taken leave of: nothing must come."""
    program = """
import ctypes, os
from calibration.measure.server import Server
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
with Server(["sh", "-c", "for i in 1 2 3 4 5; do (sleep 900 & sleep 900 &) ; done; echo up; sleep 900"], grace_s=0.1) as server:
    while server.read(0.5) != b"up\\n":
        pass
try:
    print("left", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("nothing", server.killed >= 10)
"""
    assert run(program) == "nothing True\n"


# --- interrupted --------------------------------------------------------------------------------------------------------


def send_soon(number: int) -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()


def leave(server: Server, number: int, error: BaseException) -> None:
    """By an exception, while a signal is on its way."""
    with server:
        send_soon(number)
        raise error


@pytest.mark.parametrize("number", [signal.SIGINT], indirect=True)
def test_the_second_interrupt_ends_the_grace(words: list[str], tmp_path: Path, number: int) -> None:
    server = Server(words, grace_s=600.0)
    wait_for_all(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        leave(server, number, KeyboardInterrupt())
    assert left(tmp_path) == []
    assert server.interrupt == number


@pytest.mark.parametrize("number", [signal.SIGINT], indirect=True)
def test_an_interrupt_while_stopping_is_delivered_when_nothing_is_left(
    words: list[str], tmp_path: Path, number: int
) -> None:
    server = Server(words, grace_s=600.0)
    wait_for_all(tmp_path)
    send_soon(number)
    with pytest.raises(Interrupted):
        server.stop()
    assert left(tmp_path) == []
    server.stop()


def test_an_interrupt_while_stopping_can_wait_until_the_record_is_kept(
    words: list[str], tmp_path: Path, number: int
) -> None:
    with Server(words, grace_s=600.0) as server:
        wait_for_all(tmp_path)
        send_soon(number)
        server.stop(hold_interrupt=True)
        assert left(tmp_path) == []
    assert server.interrupt == number
    with pytest.raises(Interrupted):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT], indirect=True)
def test_an_interrupt_beside_another_failure_is_delivered(words: list[str], tmp_path: Path, number: int) -> None:
    server = Server(words, grace_s=600.0)
    wait_for_all(tmp_path)
    with pytest.raises(Interrupted) as caught:
        leave(server, number, ValueError("it did not come up"))
    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.parametrize("number", [signal.SIGINT], indirect=True)
def test_an_interrupt_during_the_launch_leaves_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Interrupting(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    before = descriptors()
    with pytest.raises(Interrupted):
        Server(words, grace_s=600.0)
    assert descriptors() == before
    assert left(tmp_path) == []


@pytest.mark.parametrize("is_started", [False, True])
def test_an_exception_within_the_launch_leaves_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Failing(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            if is_started:
                super().__init__(*arguments, **options)
                started.append(self)
            raise KeyboardInterrupt

        def __del__(self) -> None:
            pass

    monkeypatch.setattr(subprocess, "Popen", Failing)
    before = descriptors()
    with pytest.raises(KeyboardInterrupt):
        Server(words, grace_s=0.1)
    assert descriptors() == before
    for supervisor in started:
        supervisor.wait(30)
    assert left(tmp_path) == []


def test_a_server_that_nobody_stops_ends_with_its_object(words: list[str], tmp_path: Path) -> None:
    server = Server(words, grace_s=0.1)
    supervisor = server._supervisor
    wait_for_all(tmp_path)
    for end in (server._output, server._report):
        end.close()
    del server
    assert supervisor is not None
    supervisor.wait(30)
    assert left(tmp_path) == []


# --- what the server sees -----------------------------------------------------------------------------------------------


def test_words_and_variables_come_as_they_are() -> None:
    show = "import json, os, sys; print(json.dumps([[os.fsencode(w).hex() for w in sys.argv[1:]], sorted(map(os.fsdecode, os.environb))]))"
    odd = ["", " ", "a\nb", "é", os.fsdecode(b"\xff\xfe"), "$HOME", "x" * 100_000]
    with Server([sys.executable, "-I", "-c", show, *odd], environment={"A": "1", "LC_ALL": "C"}) as server:
        words, variables = json.loads(read_all(server))
    assert [bytes.fromhex(word) for word in words] == [os.fsencode(word) for word in odd]
    assert set(variables) - {"LC_CTYPE"} == {"A", "LC_ALL"}
    assert server.exit_status == 0
    assert server.pid > 0


def test_the_supervisor_goes_by_another_name() -> None:
    """Who kills all that is called python, or vllm, kills the server's processes but not those that look after the others."""
    with Server(["sleep", "900"], grace_s=0.1) as server:
        assert server._supervisor is not None
        for pid in (server._supervisor.pid, *descendants(server._supervisor.pid)):
            shown = [Path(f"/proc/{pid}/{file}").read_bytes() for file in ("comm", "cmdline")]
            is_server = pid == server.pid
            assert (b"sleep" in shown[1]) == is_server
            assert is_server or not any(word in text for word in (b"python", b"startup", b"vllm") for text in shown)


def test_a_program_that_ends_at_once_is_told_of() -> None:
    for _ in range(3):
        with Server(["sh", "-c", "echo said; exit 3"]) as server:
            assert read_all(server) == b"said\n"
        assert (server.exit_status, server.killed) == (3, 0)
        assert server.pid > 0


# --- short of something -------------------------------------------------------------------------------------------------


SAYS = """
import resource, sys
from calibration.measure.server import Server
from startup_model.errors import ConfigError
def said(*words):
    with Server(words) as server:
        found = b""
        while (data := server.read(0.5)) is not None:
            found += data
    return found.decode(), server.exit_status
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(tmp_path: Path, closed: str) -> None:
    program = f"{SAYS}\nopen(sys.argv[1], 'w').write(repr(said('sh', '-c', 'echo a; echo b >&2; read x || echo end')))"
    run(program, str(tmp_path / "out"), prefix=f"exec {closed}")
    assert (tmp_path / "out").read_text() == repr(("a\nb\nend\n", 0))


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000, reason="so many files cannot be opened here")
def test_many_open_files_do_no_harm() -> None:
    program = f"""{SAYS}
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [open("/dev/null") for _ in range(1100)]
print(said("echo", "a"))
"""
    assert run(program) == "('a\\n', 0)\n"


def test_a_host_without_free_descriptors_is_named_and_none_is_lost() -> None:
    program = f"""{SAYS}
import os
used = len(os.listdir("/proc/self/fd"))
for room in range(12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        said("true")
    except ConfigError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert len(os.listdir("/proc/self/fd")) == used, room
"""
    problems = set(run(program).splitlines())
    assert problems == {
        "command = 'true': cannot be run (Too many open files); look at its variables and at the limits of this host"
    }


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nosuchprogram"], r"No such file or directory\); give the path"),
        (["/"], r"Permission denied\); give the path"),
        (["true", "a\0b"], r"embedded null byte\)"),
        (["true", "x" * 2**22], r"Argument list too long\)"),
    ],
)
def test_what_cannot_be_run_is_named(words: list[str], reason: str) -> None:
    before = descriptors()
    with pytest.raises(ConfigError, match=reason):
        Server(words)
    assert descriptors() == before


@pytest.mark.parametrize("folder", ["", ".", "relative", "/nowhere/at/all", "/dev/null"])
def test_what_is_no_temporary_folder_is_refused(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"temporary.*must be a folder with an absolute path; make one"):
        Server(["true"], temporary=folder)


def test_a_temporary_folder_stays_when_the_server_is_stopped(tmp_path: Path) -> None:
    with Server(["sleep", "900"], grace_s=0.1, temporary=tmp_path):
        pass
    assert tmp_path.is_dir()


# --- parts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [-1, 0, 7, 8, 9, 200_000, 2**60, 2**63])
def test_a_marker_is_a_limit_that_may_be_set(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    marker = server_module._new_marker()
    assert 0 <= marker <= server_module._MAX_MARKER
    assert marker < hard or hard in (resource.RLIM_INFINITY, 0)
    assert marker > 0 or 0 <= hard < 8


def test_the_marker_of_a_process_is_read() -> None:
    assert server_module._marker_of(os.getpid()) == resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    with Server(["sleep", "900"], grace_s=0.1) as server:
        assert server_module._marker_of(server.pid) == server._marker
    assert server_module._marker_of(server.pid) is None


LISTENER = "import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2]))); print('up', flush=True); time.sleep(900)"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "0.0.0.0"],  # noqa: S104  for a moment
)
def test_who_listens_on_a_port(address: str) -> None:
    port = free_port()
    listener = [sys.executable, "-I", "-S", "-c", LISTENER, address, str(port)]
    with Server(["sh", "-c", '"$@" & sleep 900', "sh", *listener], grace_s=0.1) as server:
        while server.read(0.5) != b"up\n":
            pass
        assert server.listens(port) is True
        assert listens_below(port, os.getpid()) is True
        with Server(["sleep", "900"], grace_s=0.1) as other:
            assert other.listens(port) is False
        assert other.listens(port) is None
    assert server.listens(port) is None


def test_a_foreign_program_on_the_port_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign, Server(["sleep", "900"], grace_s=0.1) as server:
        assert server.listens(foreign.getsockname()[1]) is False


class Entry(NamedTuple):
    """A socket, as psutil gives it."""

    laddr: Any
    pid: int | None
    status: str = "LISTEN"


class Address(NamedTuple):
    ip: str
    port: int


def test_who_listens_is_unknown_where_files_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    below = [os.getpid()]
    monkeypatch.setattr(server_module, "descendants", lambda root: below)
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert listens_below(port, 1) is True
        below = []
        assert listens_below(port, 1) is None
        below = [os.getpid()]
        listeners: list[Entry] = []
        monkeypatch.setattr("psutil.net_connections", lambda kind: listeners)
        assert listens_below(port, 1) is None  # nobody listens
        listeners = [Entry(Address("127.0.0.1", port), None)]
        assert listens_below(port, 1) is False  # all files of ours can be read: it is somebody else's
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert listens_below(port, 1) is None
        listeners = [Entry(Address("127.0.0.1", port), os.getpid(), "ESTABLISHED")]
        assert listens_below(port, 1) is None
        monkeypatch.setattr(server_module, "sees_listeners", lambda: False)  # without psutil
        assert listens_below(port, 1) is None


def test_the_listener_that_the_kernel_prefers_counts() -> None:
    """As ``inet_lookup_listener`` of the kernel chooses: the address itself, then any address, IPv4 first."""
    addresses = ("::1", "::", "0.0.0.0", "127.0.0.1")  # noqa: S104  looked up
    listeners = [(address, pid) for pid, address in enumerate(addresses)]
    assert [server_module._preferred(listeners[:count]) for count in range(5)] == [set(), set(), {1}, {2}, {3}]
    assert server_module._preferred([*listeners, ("::ffff:127.0.0.1", 9)]) == {3, 9}
