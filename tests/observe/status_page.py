"""For the tests of the status page: a kv_server, also under load."""

import os
import re
import subprocess
import threading
import time
import urllib.request

PATIENCE = 60


class KvServer:
    """A kv_server with a status page, until the end of the `with`. `command` has the port 0 twice."""

    def __init__(self, command, **options):
        self._command = command
        self._options = options

    def __enter__(self):
        self._server = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, **self._options)
        self.uri = self._await(r"listening on (\S+)")
        self.url = self._await(r"status on (\S+)")
        self.pid = self._server.pid
        return self

    def __exit__(self, *_):
        self._server.terminate()
        self._server.wait(PATIENCE)
        self._server.stdout.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def _await(self, pattern):
        for line in self._server.stdout:
            if found := re.match(pattern, line):
                return found[1]
        raise AssertionError(f"kv_server ended before it printed {pattern}")


class Server(KvServer):
    """examples/kv/kv_server with a status page, and clients that read and write for as long as it lives."""

    def __init__(self):
        super().__init__(["examples/kv/kv_server", "--listen=tcp://127.0.0.1:0", "--status=0"])

    def __enter__(self):
        super().__enter__()
        self._stop = threading.Event()
        self._load = threading.Thread(target=self._read_and_write)
        self._load.start()
        until(lambda: self.snapshot_has_calls())
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._load.join()
        super().__exit__()

    def snapshot_has_calls(self):
        return 'method="kv.capnp:KeyValue.get",code="OK"' in self.get("/metrics")

    def _read_and_write(self):
        command = ["examples/kv/client/kv", f"--target={self.uri}", "bench", "--workload=b", "--records=100"]
        while not self._stop.is_set():
            subprocess.run(command + ["--value_size=4KiB", "--operations=2000"], stdout=subprocess.DEVNULL, check=True)


def until(condition):
    """Waits until `condition` holds."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError("it did not come true")
        time.sleep(0.02)


def scratch():
    return os.environ["TEST_TMPDIR"]
