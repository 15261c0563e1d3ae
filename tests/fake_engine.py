"""A program that starts like an engine: log lines, a health endpoint, completions, worker processes; much faster, and failing where a test wants it to.

    vllm serve MODEL [flags of vLLM] --host H --port P

FAKE_ENGINE says how it behaves: ok (default), exit, silent, unhealthy, no_health, stubborn (ignores SIGTERM), no_completions, oom. FAKE_PIDS: a file that gets the
process ids of all its processes. FAKE_CACHE: a folder; what was compiled into it is loaded the next time.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WORKER = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
DAEMON = (
    "import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "print('daemon', os.getpid(), flush=True)\n"
    "os.close(1); os.close(2)\n"
    "time.sleep(600)\n"
)


def say(text: str) -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"(EngineCore_DP0 pid={os.getpid()}) INFO {stamp} [core.py:1] {text}", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer(200, json.dumps({"data": [{"id": "m"}]}).encode())
        else:
            self.answer({"unhealthy": 503, "no_health": 404}.get(behaviour, 200), b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if behaviour == "no_completions":
            self.answer(404, b"no such path")
            return
        self.answer(200, b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n')

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


behaviour = os.environ.get("FAKE_ENGINE", "ok")


def value(flag: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else default


def main() -> int:
    if behaviour == "exit":
        print("error: api_key=sk-verysecretvalue1234 is of no use", flush=True)
        return 3
    if behaviour == "silent":
        time.sleep(600)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = subprocess.Popen([sys.executable, "-c", WORKER], start_new_session=True)
    daemon = subprocess.run([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, text=True, check=True)
    pids = [os.getpid(), worker.pid, int(daemon.stdout.split()[1])]
    if "FAKE_PIDS" in os.environ:
        Path(os.environ["FAKE_PIDS"]).write_text(json.dumps(pids))
    model, eager = sys.argv[2], "--enforce-eager" in sys.argv
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
    if not eager:
        cache = Path(os.environ.get("VLLM_CACHE_ROOT", os.environ.get("FAKE_CACHE", "/nonexistent")), "graphs")
        if cache.exists():
            say("Directly load the compiled graph(s) for dynamic shape from the cache, took 0.010 s")
        else:
            time.sleep(0.1)
            say("Compiling a graph for dynamic shape takes 0.10 s")
            if cache.parent.exists() or "VLLM_CACHE_ROOT" in os.environ:
                cache.parent.mkdir(parents=True, exist_ok=True)
                cache.write_text("compiled")
    say("Available KV cache memory: 1.00 GiB")
    say("GPU KV cache size: 1,024 tokens")
    say("init engine (profile, create kv cache, warmup model) took 0.10 seconds")
    print("INFO:     Started server process [1]\nINFO:     Application startup complete.", flush=True)
    time.sleep(0.02)
    server = http.server.ThreadingHTTPServer((value("--host"), int(value("--port"))), Handler)
    if behaviour != "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
