#!/usr/bin/python3 -B
"""A real Prometheus scrapes a server that is under load, and knows what it counts.

HAWSER_SCRAPES (--test_env): how often, once a second; 60 is a minute.
"""

import json
import os
import socket
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, "tests/observe")
from status_page import PATIENCE, Server, scratch, until

SCRAPES = int(os.environ.get("HAWSER_SCRAPES", 5))


class PrometheusTest(unittest.TestCase):
    def query(self, query):
        """The values of the series that `query` finds."""
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return [float(each["value"][1]) for each in json.load(answer)["data"]["result"]]

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE).status == 200
        except OSError:
            return False

    def test_it_is_scraped_and_counts_go_up(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with Server() as server:
            config = os.path.join(scratch(), "prometheus.yml")
            with open(config, "w", encoding="utf-8") as file:
                json.dump(  # JSON is YAML, too.
                    {
                        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
                        "scrape_configs": [
                            {
                                "job_name": "kv",
                                "static_configs": [{"targets": [server.url.removeprefix("http://")]}],
                            }
                        ],
                    },
                    file,
                )
            prometheus = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={scratch()}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=error",
                ]
            )
            try:
                until(self.is_ready)
                calls = 'hawser_server_calls_total{method="kv.capnp:KeyValue.get",code="OK"}'
                # Those that succeed: on a busy machine one may take longer than its second.
                until(lambda: (self.query("sum_over_time(up[10m])") or [0])[0] >= SCRAPES)
                self.assertGreater(self.query(calls)[0], 0)
                self.assertGreater(self.query(f"increase({calls}[10m])")[0], 0)
                quantile = self.query("histogram_quantile(0.99, hawser_server_call_seconds_bucket)")
                self.assertGreater(quantile[0], 0)
                self.assertEqual(self.query("hawser_server_serving"), [1.0])
            finally:
                prometheus.terminate()
                prometheus.wait(PATIENCE)


if __name__ == "__main__":
    unittest.main()
