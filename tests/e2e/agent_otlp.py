#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the agent pushes by OTLP, to a receiver of this test's own.

Requests are decoded by protoc with tests/e2e/otlp_spec.proto, written from the
specification. The receiver goes away, hangs, refuses, answers garbage and comes back:
what was queued arrives, or a record says how much of it was lost, to the last one.

    agent_otlp.py [--long]   --long: outages of 1, 10 and 60 s instead of 1 and 4

Needs a build, protoc and openssl. Ends with "N passed, N failed, N skipped".
"""
import argparse
import collections
import gzip
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from agent_net import PROGRAM, Broken, Net, Tests, certificate, until

HERE = os.path.dirname(os.path.abspath(__file__))
Got = collections.namedtuple("Got", "time path headers body")


# ---- decoding ------------------------------------------------------------------

def protoc(kind, body):
    """A request as nested {name: [values]}. An unknown field is an error."""
    run = subprocess.run(["protoc", "--decode=spec." + kind, "-I" + HERE, "otlp_spec.proto"],
                         input=body, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert run.returncode == 0, run.stderr.decode()[-300:]
    top = {}
    stack = [top]
    for line in run.stdout.decode().splitlines():
        line = line.strip()
        if line == "}":
            stack.pop()
            continue
        m = re.match(r"(\w+)( \{|: (.*))$", line)
        assert m, line
        assert not m.group(1).isdigit(), "unknown field " + line
        if m.group(2) == " {":
            inner = {}
            stack[-1].setdefault(m.group(1), []).append(inner)
            stack.append(inner)
        else:
            stack[-1].setdefault(m.group(1), []).append(scalar(m.group(3)))
    return top


def scalar(text):
    if text.startswith('"'):
        # C escapes; protoc writes bytes above 0x7f as octal.
        return text[1:-1].encode().decode("unicode_escape").encode("latin-1").decode("utf-8")
    if re.match(r"^-?\d+$", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def attributes(of):
    return {a["key"][0]: list(a["value"][0].values())[0][0] for a in of.get("attributes", [])}


def metrics_of(got):
    """{(name, labels): (type, point)} and the resource of one request"""
    top = protoc("ExportMetricsServiceRequest", got.body)
    points = {}
    for r in top["resource_metrics"]:
        for s in r["scope_metrics"]:
            for m in s["metrics"]:
                kind = next(k for k in ("gauge", "sum", "histogram") if k in m)
                for p in m[kind][0]["data_points"]:
                    key = m["name"][0], tuple(sorted(attributes(p).items()))
                    assert key not in points, "twice: %s" % (key,)
                    points[key] = kind, p, m
    return points, attributes(top["resource_metrics"][0]["resource"][0])


def logs_of(got):
    return [(rec, attributes(rec)) for r in protoc("ExportLogsServiceRequest", got.body)
            ["resource_logs"] for s in r["scope_logs"] for rec in s["log_records"]]


# ---- the receiver ---------------------------------------------------------------

class Receiver:
    """Takes requests on one port; `act` says how each is answered: a status, or
    (status, headers, body), or bytes that are sent as they are."""

    def __init__(self, tls=None):
        self.got, self.act, self.tls = [], lambda got: 200, tls
        self.port, self.server = 0, None
        self.up()

    def up(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                got = Got(time.monotonic(), self.path, dict(self.headers), body)
                act = outer.act(got)
                if isinstance(act, bytes):
                    self.wfile.write(act)
                    self.close_connection = True
                    return
                status, headers, text = act if isinstance(act, tuple) else (act, {}, b"")
                if status == 200:
                    outer.got.append(got)
                self.send_response(status)
                for k, v in headers.items():
                    self.send_header(k, v)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                outer.got.append(Got(time.monotonic(), "GET " + self.path, {}, b""))
                self.send_error(404)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            open_now = set()

            def get_request(self):
                s, a = super().get_request()
                self.open_now.add(s)
                return s, a

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.server.open_now = set()
        if self.tls:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self):
        self.server.shutdown()
        self.server.server_close()
        for s in self.server.open_now:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def url(self):
        return "%s://127.0.0.1:%d" % ("https" if self.tls else "http", self.port)

    def paths(self, path):
        return [g for g in list(self.got) if g.path == path]

    def numbers(self):
        """How often each numbered record came, and what was said to be lost."""
        came, lost = collections.Counter(), collections.Counter()
        for g in self.paths("/v1/logs"):
            for rec, a in logs_of(g):
                if "lost_log_records" in a:
                    lost["logs"] += a["lost_log_records"]
                    lost["points"] += a["lost_metric_points"]
                else:
                    came[json.loads(a["evidence"])["number"]] += 1
        return came, lost


# ---- tests ------------------------------------------------------------------------

NAMES = ["plain", "a\"b\\c{}=,", "mütze \u202e \u2028", "x" * 300]


def text_points(page):
    """{(name, labels): value} of /metrics in the text format"""
    points = {}
    for line in page.decode().split("\n"):
        if not line or line.startswith("#"):
            continue
        m = re.match(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$', line)
        assert m, line
        labels = re.findall(r'([a-z_]+)="((?:\\.|[^"\\])*)"', m.group(2) or "")
        points[m.group(1), tuple(sorted(
            (k, re.sub(r"\\(.)", lambda e: "\n" if e.group(1) == "n" else e.group(1), v))
            for k, v in labels))] = float(m.group(3))
    return points


def same_as_metrics(where):
    """Every sample of /metrics is a point here, and the other way round."""
    names = where + "/names"
    with open(names, "w") as f:
        f.write("\n".join(NAMES) + "\n")
    with Net("http", "127.0.0.1:0", "-n", len(NAMES), "-j", names) as net:
        net.ask("publish")
        conn = http.client.HTTPConnection("127.0.0.1", net.port, timeout=10)
        conn.request("GET", "/metrics")
        text = text_points(conn.getresponse().read())
        conn.close()
    r = Receiver()
    with Net("otlp", r.url(), "-n", len(NAMES), "-j", names) as net:
        before = time.time_ns()
        net.ask("metrics")
        assert until(lambda: r.got, 10), "nothing came"
    got = r.got[0]
    r.down()
    assert got.path == "/v1/metrics", got.path
    assert got.headers["Content-Type"] == "application/x-protobuf", got.headers
    assert got.headers["Content-Encoding"] == "gzip", got.headers
    points, resource = metrics_of(got)
    assert resource == {"host.name": "node-1", "service.name": "pipetrace",
                        "service.version": "0-test"}, resource
    seen = set()
    for (name, labels), (kind, p, m) in points.items():
        assert abs(p["time_unix_nano"][0] - before) < 60e9
        if kind == "histogram":
            total = 0
            assert m["histogram"][0]["aggregation_temporality"] == [
                "AGGREGATION_TEMPORALITY_CUMULATIVE"]
            bounds = p.get("explicit_bounds", [])
            counts = p["bucket_counts"]
            assert len(counts) == len(bounds) + 1
            for bound, n in zip(bounds + [float("inf")], counts):
                total += n
                le = "+Inf" if bound == float("inf") else "%.15g" % bound
                key = name + "_bucket", tuple(sorted(labels + (("le", le),)))
                assert abs(text[key] - total) <= len(counts) / 2, (key, text[key], total)
                seen.add(key)
            assert p["count"][0] == total
            for suffix, value in (("_sum", p["sum"][0]), ("_count", total)):
                assert abs(text[name + suffix, labels] - value) <= len(counts) / 2
                seen.add((name + suffix, labels))
            assert p["start_time_unix_nano"][0] <= p["time_unix_nano"][0]
            continue
        value = p["as_double"][0] if "as_double" in p else 0.0
        assert text[name, labels] == float(value), (name, labels, value)
        seen.add((name, labels))
        assert name.endswith("_total") == (kind == "sum"), name
        if kind == "sum":
            assert m["sum"][0]["is_monotonic"] == ["true"], m["sum"][0]
            assert m["sum"][0]["aggregation_temporality"] == [
                "AGGREGATION_TEMPORALITY_CUMULATIVE"]
            assert p["start_time_unix_nano"][0] <= p["time_unix_nano"][0]
        assert m["unit"][0] in ("1", "s", "By"), m["unit"]
    assert seen == set(text), sorted(set(text) ^ seen)[:4]
    return "%d points" % len(points)


def change_records(_):
    r = Receiver()
    with Net("otlp", r.url()) as net:
        net.ask("change 10")
        assert until(lambda: sum(r.numbers()[0].values()) == 10, 10), r.numbers()
    r.down()
    for g in r.paths("/v1/logs"):
        for rec, a in logs_of(g):
            n = json.loads(a["evidence"])["number"]
            ended = n % 10 == 9
            want = ("INFO" if ended else "WARN" if n % 2 else "ERROR")
            assert rec["severity_number"] == ["SEVERITY_NUMBER_" + want], (n, rec)
            assert rec["severity_text"] == [want]
            assert rec["body"][0]["string_value"] == ["worker 3 is slower than its peers"]
            assert a["job_id"] == "job-0" and a["verdict"] == "slow_worker"
            assert a["advice"] == "look at its node" and a["subject"] == "worker %d" % n
            assert a["state"] == ("ended" if ended else "holds")
            assert ("evidence_id" in a) == (n % 3 != 0)
            assert abs(rec["time_unix_nano"][0] - time.time_ns()) < 60e9


def outage(_, seconds):
    """Nothing is lost while it is away, and nothing said to be lost."""
    r = Receiver()
    with Net("otlp", r.url(), limit=seconds * 3 + 90) as net:
        net.ask("change 5")
        net.ask("metrics")
        assert until(lambda: sum(r.numbers()[0].values()) == 5, 10)
        threads, fds, _, _ = net.usage()
        r.down()
        queued, exports, end = 5, 1, time.monotonic() + seconds
        while time.monotonic() < end:
            net.ask("change 20")
            net.ask("metrics")
            queued, exports = queued + 20, exports + 1
            time.sleep(0.2)
        down = net.stats()
        r.up()
        # The last pause may have been half a minute and half of that more.
        back = time.monotonic()
        limit = min(45, 0.75 + seconds * 3) + 10
        assert until(lambda: not net.stats()["queued_bytes"], limit), net.stats()
        took = time.monotonic() - back
        stats = net.stats()
        assert stats["dropped"] == 0 and stats["retries"] > 0, stats
        came, lost = r.numbers()
        assert sorted(came) == list(range(queued)), "%d of %d" % (len(came), queued)
        assert not lost, lost
        metrics = r.paths("/v1/metrics")
        assert len(metrics) >= exports, (len(metrics), exports)
        assert net.usage()[0] == threads and net.usage()[1] <= fds + 1, (net.usage(), fds)
    r.down()
    return ("%d s away: %d records and %d exports came, %d of them twice, %.1f s after; "
            "%d attempts" % (seconds, queued, exports, sum(came.values()) - queued, took,
                             down["retries"]))


def overflow(_, records):
    """What the queue could not hold is told, to the last record and point. Records
    displace metrics, and only then each other."""
    r = Receiver()
    with Net("otlp", r.url(), "-q", 65536) as net:
        net.ask("metrics")
        assert until(lambda: r.got, 10)
        per_export = sum(1 for _ in metrics_of(r.got[0])[0])
        r.down()
        for _ in range(60):
            net.ask("metrics")
        held = net.stats()
        assert held["queued_bytes"] <= 65536 and held["dropped_points"] > 0, held
        net.ask("change %d" % records)
        held = net.stats()
        assert held["queued_bytes"] <= 65536, held
        assert (held["dropped_logs"] > 0) == (records >= 2000), held
        r.up()
        assert until(lambda: not net.stats()["queued_bytes"], 20), net.stats()
        assert until(lambda: r.numbers()[1], 10), "no loss was told"
        time.sleep(0.3)
        came, lost = r.numbers()
        exports = len({g.body for g in r.paths("/v1/metrics")})
        stats = net.stats()
        assert lost["logs"] == records - len(came), (lost, len(came))
        assert lost["points"] == (61 - exports) * per_export, (lost, exports, per_export)
        assert stats["dropped_logs"] == lost["logs"], stats
        assert stats["dropped_points"] == lost["points"], stats
        assert sorted(came)[-1] == records - 1, "the newest were not kept"
    r.down()
    assert exports > 1 or records >= 2000, exports
    return "%d of %d records and %d of 61 exports came, the rest was told" % (
        len(came), records, exports)


def retry_after(_):
    r = Receiver()
    asked = []

    def act(got):
        asked.append(got.time)
        return (429, {"Retry-After": "2"}, b"slow down") if len(asked) == 1 else 200
    r.act = act
    with Net("otlp", r.url()) as net:
        net.ask("change 3")
        assert until(lambda: len(r.numbers()[0]) == 3, 15)
    r.down()
    gap = asked[1] - asked[0]
    assert gap >= 1.9, gap
    assert len(asked) <= 3, asked
    return "asked for 2 s, came after %.2f" % gap


def statuses(_):
    """What may come again is sent again; what is refused is dropped and told."""
    for status in (429, 502, 503, 504):
        r = Receiver()
        seen = []
        r.act = lambda got: seen.append(1) or (status if len(seen) == 1 else 200)
        with Net("otlp", r.url()) as net:
            net.ask("change 2")
            assert until(lambda: len(r.numbers()[0]) == 2, 10), status
            assert net.stats()["dropped"] == 0, (status, net.stats())
        r.down()
    for status in (301, 302, 400, 401, 404, 413, 500):
        r = Receiver()
        seen = []
        r.act = lambda got: seen.append(1) or (
            (status, {"Location": r.url() + "/other"}, b"") if len(seen) == 1 else 200)
        with Net("otlp", r.url()) as net:
            net.ask("change 1")
            assert until(lambda: net.stats()["dropped_logs"] == 1, 10), (status, net.stats())
            net.ask("metrics")  # one that gets through: then it is told
            assert until(lambda: len(r.paths("/v1/metrics")) == 1, 10), status
            # what a refused batch could not tell is told by the next one
            assert until(lambda: r.numbers()[1]["logs"] == 1, 10), (status, r.numbers())
            assert not r.numbers()[0], status
            assert not [g for g in r.got if "other" in g.path], "a redirect was followed"
        r.down()


def part_is_refused(_):
    r = Receiver()
    body = bytes([0x0A, 0x02, 0x08, 0x07])  # partial_success { rejected: 7 }
    r.act = lambda got: (200, {"Content-Type": "application/x-protobuf"}, body)
    with Net("otlp", r.url()) as net:
        net.ask("metrics")
        assert until(lambda: net.stats()["sent"] == 1, 10)
        assert net.stats()["dropped_points"] == 7, net.stats()
    r.down()


def garbage(_):
    """Answers that are none: sent again until a good one comes."""
    for bad in (b"\0\xff\xfe garbage\n\n", b"HTTP/9.9 abc\r\n\r\n", b"",
                b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
                b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200000 + b"\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 9000000):
        r = Receiver()
        seen = []
        r.act = lambda got: bad if not seen.append(1) and len(seen) == 1 else 200
        with Net("otlp", r.url()) as net:
            rss = net.usage()[2]
            net.ask("change 2")
            assert until(lambda: len(r.numbers()[0]) == 2, 15), bad[:30]
            assert net.stats()["dropped"] == 0, (bad[:30], net.stats())
            assert net.usage()[2] < rss + 16384, (bad[:30], rss, net.usage())
        r.down()
    # a good status with a body that is no protobuf is a good status
    r = Receiver()
    r.act = lambda got: (200, {}, b"\xff" * 5000)
    with Net("otlp", r.url()) as net:
        net.ask("change 2")
        assert until(lambda: not net.stats()["queued_bytes"], 10), net.stats()
        assert net.stats()["dropped"] == 0, net.stats()
    r.down()


def hangs(_):
    """A receiver that takes all and says nothing costs no caller anything."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(5)
    with Net("otlp", "http://127.0.0.1:%d" % s.getsockname()[1]) as net:
        net.ask("change 1")
        time.sleep(0.5)
        t0 = time.monotonic()
        for _ in range(20):
            net.ask("metrics")
        took = time.monotonic() - t0
        assert took < 5, took
        t0 = time.monotonic()
        assert net.ask("stop 1") == "stopped"
        end = time.monotonic() - t0
        assert 0.9 < end < 4, end
    s.close()
    return "20 exports queued in %.2f s, stop 1 took %.2f s" % (took, end)


def last_words(_):
    """What waits is sent when it ends, a receiver that is gone holds it no longer."""
    r = Receiver()
    with Net("otlp", r.url()) as net:
        net.ask("metrics")
        net.ask("change 500")
        net.ask("stop 5")
        assert len(r.numbers()[0]) == 500, len(r.numbers()[0])
        assert len(r.paths("/v1/metrics")) == 1
        assert net.close() == 0
    r.down()
    with Net("otlp", r.url()) as net:
        net.ask("change 1")
        t0 = time.monotonic()
        net.ask("stop 1")
        assert time.monotonic() - t0 < 4


def tls(where):
    if not shutil.which("openssl"):
        return "skip: no openssl here"
    ca = certificate(where, "ca")
    client = certificate(where, "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ca)
    context.load_verify_locations(client[0])
    context.verify_mode = ssl.CERT_REQUIRED
    r = Receiver(context)
    headers = where + "/headers"
    with open(headers, "w") as f:
        f.write("Authorization: Bearer first\n# comment\nX-Scope-OrgID: me\n")
    with Net("otlp", r.url(), "-a", ca[0], "-c", client[0], "-k", client[1],
             "-H", headers) as net:
        net.ask("metrics")
        assert until(lambda: len(r.got) == 1, 15), net.stats()
        assert r.got[0].headers["Authorization"] == "Bearer first", r.got[0].headers
        assert r.got[0].headers["X-Scope-OrgID"] == "me"
        with open(headers + ".new", "w") as f:
            f.write("Authorization: Bearer second one\n")
        os.rename(headers + ".new", headers)
        net.ask("metrics")
        assert until(lambda: len(r.got) == 2, 15)
        assert r.got[1].headers["Authorization"] == "Bearer second one"
        assert "X-Scope-OrgID" not in r.got[1].headers
    # a receiver that nobody vouches for, and one that wants a certificate
    for options in (["-c", client[0], "-k", client[1]], ["-a", ca[0]]):
        with Net("otlp", r.url(), *options) as net:
            net.ask("change 1")
            assert until(lambda: net.stats()["retries"] >= 2, 10), net.stats()
            assert net.stats()["sent"] == 0, options
    assert len(r.got) == 2
    r.down()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--long", action="store_true")
    args = ap.parse_args()
    if not os.path.exists(PROGRAM):
        print("no build/tests/e2e/agent_net: make e2e")
        return 77
    if not shutil.which("protoc"):
        print("no protoc here")
        return 77
    t = Tests()
    with tempfile.TemporaryDirectory(prefix="pt-otlp-") as where:
        try:
            Net("otlp", "http://127.0.0.1:9").close()
        except Broken as e:
            print(e)
            return 77 if "libcurl" in str(e) else 1
        t.run("same_as_metrics", same_as_metrics, where)
        t.run("change_records", change_records, where)
        for seconds in (1, 10, 60) if args.long else (1, 4):
            t.run("outage_%d" % seconds, outage, where, seconds)
        for records in (20, 3000):
            t.run("overflow_%d" % records, overflow, where, records)
        t.run("retry_after", retry_after, where)
        t.run("statuses", statuses, where)
        t.run("part_is_refused", part_is_refused, where)
        t.run("garbage", garbage, where)
        t.run("hangs", hangs, where)
        t.run("last_words", last_words, where)
        t.run("tls", tls, where)
    return t.end()


if __name__ == "__main__":
    sys.exit(main())
