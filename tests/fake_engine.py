"""A program that starts like an engine: log lines, a health endpoint, completions, worker processes; much faster, and failing where a test wants it to.

    vllm serve MODEL [flags of vLLM] --host H --port P
    python -m sglang.launch_server --model-path MODEL [flags of SGLang] --host H --port P

FAKE_ENGINE says how it behaves: ok (default), exit, silent, unhealthy, no_health, stubborn (ignores SIGTERM), no_completions, oom; quiet_compile (its log does not
tell whether it compiled), never_ready (its log does not say ready), crash (ends on the first request), drip (its answer comes byte by byte), nested (its list of
models is nested beyond reason), flood (prints 4 MB before it is ready), elsewhere (it listens on another port than its own). FAKE_PIDS: a file that gets the process ids of all its processes. FAKE_CACHE: a folder; what was
compiled into it is loaded the next time. FAKE_STARTS: a file that gets a line for each start. With --api-key, requests need that key.

As SGLang's older releases, it answers /health while it still warms up; the line that says ready comes later.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import threading
import time
from pathlib import Path

WARM_UP_S = 0.4
behaviour = os.environ.get("FAKE_ENGINE", "ok")
is_sglang = "sglang.launch_server" in sys.argv
warmed_up = threading.Event()


def value(flag: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else default


class Handler(socketserver.StreamRequestHandler):
    """Answers by hand: to import ``http.server`` takes longer than all the rest of a start."""

    def handle(self) -> None:
        method, path, _ = self.rfile.readline().decode().split()
        head = iter(lambda: self.rfile.readline().decode().strip(), "")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in head)}
        self.rfile.read(int(headers.get("content-length", 0)))
        if method == "POST":
            self.complete()
        else:
            self.tell(path, headers.get("authorization"))

    def tell(self, path: str, authorization: str | None) -> None:
        key = value("--api-key")
        if path.startswith("/health"):
            is_early = path == "/health" or not is_sglang or warmed_up.is_set()
            self.answer({"unhealthy": 503, "no_health": 404}.get(behaviour, 200 if is_early else 503), b"")
        elif key and authorization != f"Bearer {key}":
            self.answer(401, f"you sent {authorization}".encode())
        elif path == "/v1/models":
            self.answer(200, b"[" * 500_000 if behaviour == "nested" else json.dumps({"data": [{"id": "m"}]}).encode())
        elif path == "/get_server_info" and is_sglang:
            self.answer(200, json.dumps({"version": "0.5.4", "api_key": key}).encode())
        else:
            self.answer(404, b"no such path")

    def complete(self) -> None:
        if behaviour == "crash":
            print("FATAL: segmentation fault of the kernel", flush=True)
            os._exit(7)
        if behaviour == "drip":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            for _ in range(600):
                self.wfile.write(b" ")
                time.sleep(0.05)
        elif behaviour == "secret":
            self.answer(400, f"\x1b[31mno {value('--api-key')} for you".encode())
        elif behaviour == "no_completions":
            self.answer(404, b"no such path")
        else:
            self.answer(200, b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n')

    def answer(self, status: int, body: bytes) -> None:
        self.wfile.write(f"HTTP/1.0 {status} Status\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


def start_workers() -> None:
    """A worker in a session of its own, which ignores SIGTERM, and a daemon: what has to be gone when the server is."""
    worker = os.fork()
    if worker == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if daemon := os.fork():
            os.write(writing, str(daemon).encode())
            os._exit(0)
        os.closerange(0, 3)
        os.closerange(reading, writing + 1)
        time.sleep(600)
        os._exit(0)
    os.wait()
    pids = [os.getpid(), worker, int(os.read(reading, 20))]
    if "FAKE_PIDS" in os.environ:
        Path(os.environ["FAKE_PIDS"]).write_text(json.dumps(pids))


def say(text: str) -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"(EngineCore_DP0 pid={os.getpid()}) INFO {stamp} [core.py:1] {text}", flush=True)


def start_vllm() -> int:
    """vLLM's lines, up to the one before it listens; the exit status of a start that fails, else 0."""
    model, eager = sys.argv[2], "--enforce-eager" in sys.argv or "-O0" in sys.argv
    print(
        f"(APIServer pid={os.getpid()}) INFO 01-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0",
        flush=True,
    )
    say(f"Initializing a V1 LLM engine (v0.11.0) with config: model='{model}', enforce_eager={eager}")
    say(f"Starting to load model {model}...")
    if behaviour == "oom":
        say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
        return 1
    time.sleep(0.05)
    say("Loading weights took 0.04 seconds")
    say("Model loading took 0.5 GiB and 0.05 seconds")
    began = time.monotonic()
    if not eager:
        compile_graphs()
    if behaviour == "flood":
        for _ in range(40):
            sys.stdout.write("x" * 99_999 + "\n")
    if behaviour == "secret":
        say(f"Started with key {value('--api-key')} in use, and {os.environ['VLLM_S3_CRED']}")
    if behaviour == "secret_end":
        say(f"RuntimeError: {value('--api-key')} is of no use")
        return 1
    say("Available KV cache memory: 1.00 GiB")
    say("GPU KV cache size: 1,024 tokens")
    took = time.monotonic() - began
    say(f"init engine (profile, create kv cache, warmup model) took {took:.2f} seconds")
    print("INFO:     Started server process [1]", flush=True)
    if behaviour != "never_ready":
        print("INFO:     Application startup complete.", flush=True)
    time.sleep(0.02)
    return 0


def compile_graphs() -> None:
    folder = Path(os.environ.get("VLLM_CACHE_ROOT", os.environ.get("FAKE_CACHE", "/nonexistent")))
    keeps = os.environ.get("VLLM_DISABLE_COMPILE_CACHE") != "1"
    cache = folder / "graphs"
    if behaviour == "quiet_compile":
        return
    if cache.exists() and keeps:
        say("Directly load the compiled graph(s) for dynamic shape from the cache, took 0.010 s")
        return
    time.sleep(0.1)
    say("Compiling a graph for dynamic shape takes 0.10 s")
    if keeps and (folder.exists() or "VLLM_CACHE_ROOT" in os.environ):
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("compiled")


def tell(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", flush=True)


def start_sglang() -> int:
    """SGLang's lines, up to the one before it listens."""
    tell(
        f"server_args=ServerArgs(model_path='{value('--model-path')}', dtype='auto', tp_size=1, api_key='{value('--api-key')}')"
    )
    time.sleep(0.05)
    tell("Init torch distributed begin.")
    tell("Init torch distributed ends. mem usage=0.00 GB")
    tell("Load weight begin. avail mem=78.12 GB")
    time.sleep(0.05)
    tell("Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=77.00 GB, mem usage=0.01 GB.")
    tell("KV Cache is allocated. #tokens: 1024, K size: 0.01 GB, V size: 0.01 GB")
    tell("Memory pool end. avail mem=70.00 GB")
    tell("max_total_num_tokens=1024, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2049")
    tell("INFO:     Started server process [1]")
    tell("INFO:     Application startup complete.")
    return 0


def warm_up() -> None:
    """What SGLang does when it listens already."""
    time.sleep(WARM_UP_S)
    warmed_up.set()
    if behaviour != "never_ready":
        tell("The server is fired up and ready to roll!")


def main() -> int:
    if "FAKE_STARTS" in os.environ:
        with Path(os.environ["FAKE_STARTS"]).open("a") as file:
            file.write(" ".join(sys.argv[1:]) + "\n")
    if behaviour == "exit":
        print("error: api_key=sk-verysecretvalue1234 is of no use", flush=True)
        return 3
    if behaviour == "silent":
        time.sleep(600)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_workers()
    status = start_sglang() if is_sglang else start_vllm()
    if status:
        return status
    server = Listener((value("--host"), 0 if behaviour == "elsewhere" else int(value("--port"))), Handler)
    if is_sglang:
        threading.Thread(target=warm_up, daemon=True).start()
    if behaviour != "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
