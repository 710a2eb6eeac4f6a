#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The agent's HTTP server under those who mean it no good.

Slow clients, thousands of connections, garbage, paths that lead out of the folder,
job names that would be labels of their own, wrong tokens. All the while a scrape from
another address succeeds; threads, descriptors and memory are afterwards what they
were before.

    agent_http.py [--long]   --long: 10,000 connections instead of 2,000, and clients
                             that never read are waited for until they are cut off

Needs a build; openssl and promtool where they are there. Ends with "N passed, N
failed, N skipped".
"""
import argparse
import gzip
import http.client
import os
import random
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import warnings

from agent_net import PROGRAM, Net, Tests, certificate, until

OTHER = "127.0.0.2"  # who scrapes while 127.0.0.1 attacks
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


OWN = {"Authorization": "Bearer owntoken"}  # what pages but /metrics ask for
BEAR = "Authorization: Bearer owntoken\r\n"


def own_token(where):
    path = where + "/own"
    with open(path, "w") as f:
        f.write("owntoken\n")
    return path


def request(port, path="/metrics", method="GET", headers=None, source="127.0.0.1", limit=10,
            tls=None, body=None):
    """(status, headers, body)"""
    if tls:
        conn = http.client.HTTPSConnection("127.0.0.1", port, timeout=limit, context=tls)
    else:
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=limit,
                                          source_address=(source, 0))
    try:
        conn.request(method, path, body=body, headers={**OWN, **(headers or {})}
                     if headers != {} else {})
        r = conn.getresponse()
        return r.status, dict(r.getheaders()), r.read()
    finally:
        conn.close()


def raw(port, data, limit=10, source="127.0.0.1"):
    """What comes back until the other side closes or is silent for a second."""
    s = socket.create_connection(("127.0.0.1", port), timeout=limit, source_address=(source, 0))
    back = b""
    try:
        s.sendall(data)
        s.settimeout(1)
        while True:
            got = s.recv(65536)
            if not got:
                break
            back += got
    except (socket.timeout, ConnectionError):
        pass
    s.close()
    return back


def alive(port, source=OTHER, limit=10):
    t0 = time.monotonic()
    status, _, body = request(port, source=source, limit=limit)
    assert status == 200 and b"pipetrace_agent_info" in body, status
    return time.monotonic() - t0


# ---- pages -----------------------------------------------------------------------

def openmetrics(text):
    """A strict reader of OpenMetrics 1.0: {family: (type, [(name, labels, value)])}."""
    assert text.endswith("\n# EOF\n") and text.count("\n# EOF\n") == 1
    suffix = {"counter": ("_total", "_created"), "gauge": ("",), "info": ("_info",),
              "histogram": ("_bucket", "_sum", "_count", "_created")}
    families, current, seen = {}, None, set()
    for line in text[:-len("# EOF\n")].split("\n")[:-1]:
        assert line and line == line.strip(" "), repr(line)
        m = re.fullmatch(r"# (TYPE|HELP|UNIT) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)", line)
        if m:
            what, name, rest = m.groups()
            if name != current:
                assert name not in families, "family twice: " + name
                families[name], current = ["unknown", []], name
            assert not families[name][1], "metadata after samples: " + line
            if what == "TYPE":
                assert rest in suffix, line
                families[name][0] = rest
            if what == "UNIT":
                assert name.endswith("_" + rest), line
            continue
        m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="'
                         r'(?:[^"\\\n]|\\["\\n])*"(?:,(?!\}))?)*)\})? (\S+)', line)
        assert m, repr(line)
        name, labels, value = m.groups()
        labels = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', labels or "")
        assert len({k for k, _ in labels}) == len(labels), line
        for _, v in labels:
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", v), repr(v)
            assert len(v.encode()) <= 4 * 128, v
        kind = families[current][0]
        assert name in [current + s for s in suffix[kind]], (name, current, kind)
        assert (name, tuple(labels)) not in seen, "sample twice: " + line
        seen.add((name, tuple(labels)))
        float(value)
        families[current][1].append((name, dict(labels), float(value)))
    for name, (kind, samples) in families.items():
        if kind == "histogram":
            last = {}
            for n, labels, v in samples:
                if n.endswith("_bucket"):
                    key = tuple(sorted((k, x) for k, x in labels.items() if k != "le"))
                    assert v >= last.get(key, 0), (name, labels)
                    last[key] = v
                    if labels["le"] == "+Inf":
                        last[key, "all"] = v
                elif n.endswith("_count"):
                    assert last[tuple(sorted(labels.items())), "all"] == v
    return families


EVIL = ['x"} 1\tevil_metric{a="', 'a\\', '\\"', '# EOF', '{}', ' ', "\x1b[2Jx", "y" * 5000,
        "\u202eevil", '"} 1 # {a="b"} 1', "' OR 1=1", "<script>alert(1)</script>", "../../x",
        "\r", "é" * 100]


def pages(where, _port):
    names = where + "/names"
    with open(names, "wb") as f:
        f.write(b"\n".join(n.encode() for n in EVIL) + b"\n\xff\xfe\xc3\n")
    with Net("http", "127.0.0.1:0", "-n", len(EVIL) + 1, "-j", names,
             "-T", own_token(where)) as net:
        status, headers, _ = request(net.port)
        assert status == 503 and headers["Retry-After"], status  # nothing yet
        net.ask("publish")
        status, headers, text = request(net.port, headers={"Accept": OPENMETRICS})
        assert status == 200
        assert headers["Content-Type"] == ("application/openmetrics-text; version=1.0.0; "
                                           "charset=utf-8")
        families = openmetrics(text.decode())
        jobs = {labels["job_id"] for _, labels, _ in families["pipetrace_job"][1]}
        assert "evil_metric" not in families and len(jobs) >= len(EVIL) - 1, len(jobs)
        assert not any(b"evil_metric" in l.split(b"{")[0] for l in text.split(b"\n"))
        for name in ("nosniff", "no-store"):
            assert name in headers.values(), headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        status, headers, zipped = request(net.port, headers={"Accept": OPENMETRICS,
                                                             "Accept-Encoding": "gzip"})
        assert headers["Content-Encoding"] == "gzip" and gzip.decompress(zipped) == text
        status, headers, old = request(net.port, headers={"Accept-Encoding": "gzip;q=0"})
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
        assert "Content-Encoding" not in headers and b"# EOF" not in old.split(b"\n")[-2:]
        for path in ("/jobs", "/evidence"):
            assert request(net.port, path)[2] == b'["%s"]\n' % path[1:].encode()
        if not shutil.which("promtool"):
            return "without promtool, which is not here"
        lint = subprocess.run(["promtool", "check", "metrics"], input=old, timeout=20,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # 3: style of names; below that it could not be read
        assert lint.returncode in (0, 3) and b"error" not in lint.stdout.lower(), lint.stdout
        return "%d families" % len(families)


def swapped(_, port, net):
    """Pages change while they are read: each answer is whole."""
    stop, seen, errors = threading.Event(), [], []

    def scrape():
        while not stop.is_set():
            try:
                openmetrics(request(port, headers={"Accept": OPENMETRICS})[2].decode())
                seen.append(1)
            except Exception as e:  # told below
                errors.append(e)
                return
    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(200):
        net.ask("publish")
    time.sleep(0.2)
    stop.set()
    for t in threads:
        t.join(20)
    assert not errors, errors[0]
    assert len(seen) >= 10, len(seen)
    return "%d scrapes of 200 pages" % len(seen)


# ---- paths -------------------------------------------------------------------------

def paths(where, port, _net):
    secret = b"SECRET-" + os.urandom(8).hex().encode()
    folder = where + "/evidence"
    with open(where + "/outside.json", "wb") as f:
        f.write(secret)
    files = {"20260101-abc.json": b'{"a":1}', "20260101-abc.html": b"<html>",
             "20260101-abc.ptrace": os.urandom(3 << 20), "0.json": b""}
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    os.symlink("../outside.json", folder + "/link.json")
    os.symlink("/etc", folder + "/dir.html")
    os.mkdir(folder + "/folder.json")
    os.mkfifo(folder + "/fifo.json")
    with open(folder + "/secret.txt", "wb") as f:
        f.write(secret)
    for name, data in files.items():
        status, headers, body = request(port, "/evidence/" + name)
        assert status == 200 and body == data, (name, status, len(body))
        assert headers["X-Content-Type-Options"] == "nosniff"
    csp = request(port, "/evidence/20260101-abc.html")[1]["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'unsafe-inline'", "sandbox allow-scripts"):
        assert part in csp, csp
    assert "connect-src" not in csp
    ups = ["..", "%2e%2e", ".%2e", "%252e%252e", "%c0%ae%c0%ae", "..;", "..\\", "%2e%2e%5c"]
    slashes = ["/", "%2f", "%252f", "\\", "//", "%5c", "%c0%af"]
    tried = 0
    bad = [up + slash + rest for up in ups for slash in slashes
           for rest in ("outside.json", "../outside.json", "etc/passwd")]
    bad += ["link.json", "dir.html", "dir.html/passwd", "folder.json", "folder.json/",
            "fifo.json", "secret.txt", ".", "..", "", "/", "//", "a" * 129 + ".json",
            "x" * 6000 + ".json", "20260101-abc.json%00.html", "20260101-abc.json%00",
            "20260101-ABC.json", "20260101-abc.json/", "20260101-abc.json.ptrace",
            "/etc/passwd", "/" + where + "/outside.json", "%2fetc%2fpasswd", "20260101-abc.JSON",
            "%32%30260101-abc.json", "file:///etc/passwd", "20260101-abc"]
    for prefix in ("/evidence/", "/", "/jobs/", "/evidence/../", "/evidence/./"):
        for rest in bad:
            back = raw(port, ("GET %s%s HTTP/1.0\r\n%s\r\n" % (prefix, rest, BEAR))
                       .encode("latin-1"))
            head = back.split(b"\r\n")[0]
            assert secret not in back and b"root:" not in back, (prefix, rest)
            own = prefix + rest in ("/evidence/", "/evidence//", "/evidence/./", "/evidence/../")
            assert b" 404 " in head or b" 414 " in head or (own and b" 200 " in head) or \
                b" 400 " in head or b" 431 " in head, (prefix, rest, head)
            tried += 1
    # A NUL ends a name: what is before it is judged as any other.
    for name in (b"../outside.json\0.html", b"secret.txt\0.json", b"link.json\0.html"):
        back = raw(port, b"GET /evidence/" + name + b" HTTP/1.0\r\n" + BEAR.encode() +
                   b"\r\n")
        assert b" 200 " not in back.split(b"\r\n")[0] and secret not in back, (name, back)
    return "%d paths" % tried


def requests(_where, port, _net):
    """Methods, bodies, versions, pipelines, heads that are too large."""
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"):
        status, headers, _ = request(port, method=method)
        assert status == 405 and headers["Allow"] == "GET, HEAD", (method, status)
    status, headers, body = request(port, method="HEAD")
    assert status == 200 and not body and int(headers["Content-Length"]) > 1000
    # an upload is not taken
    back = raw(port, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
               + b"x" * 100000)
    assert back.startswith(b"HTTP/1.1 405"), back[:50]
    # ... nor is what follows a request taken for another one
    back = raw(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n"
               b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n1234567890")
    assert b"pipetrace_" not in back, back[:200]
    assert raw(port, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nok\n")
    back = raw(port, b"GET /healthz HTTP/1.1\r\n\r\n")  # no Host
    assert b" 400 " in back.split(b"\r\n")[0], back[:50]
    back = raw(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    assert back.count(b"\r\n\r\nok\n") == 20, back.count(b"ok")
    for big in (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 50000 + b"\r\n",
                b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                b"G" * 100000 + b" / HTTP/1.1\r\n\r\n"):
        back = raw(port, big)
        assert b" 200 " not in back.split(b"\r\n")[0], back[:80]
    alive(port)


def garbage(_where, port, _net):
    r = random.Random(7)
    good = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain;q=0.5\r\n\r\n"
    n = 0
    for i in range(150):
        if i % 3 == 0:
            data = r.randbytes(r.randrange(1, 4000))
        elif i % 3 == 1:
            data = bytearray(good)
            for _ in range(r.randrange(1, 8)):
                data[r.randrange(len(data))] = r.randrange(256)
        else:
            at = r.randrange(len(good))
            data = good[:at] + r.randbytes(r.randrange(1, 30)) + good[at:]
        s = socket.create_connection(("127.0.0.1", port), timeout=5)
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                n += 1
        except OSError:
            pass
        s.close()
    alive(port)


# ---- who may -----------------------------------------------------------------------

def nobody(where, _port):
    """Without a token that is configured, what jobs do is for who can read its file."""
    path = own_token(where)
    for options in (["-T", path], []):
        with Net("http", "127.0.0.1:0", "-e", where, *options) as net:
            net.ask("publish")
            for page in ("/jobs", "/evidence", "/evidence/", "/evidence/a.json", "/", "/nothing",
                         "//metrics", "/metrics/", "/metrics/../jobs", "/healthz/../jobs"):
                for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x"}):
                    got = request(net.port, page, headers=headers)
                    assert got[0] == 401, (page, headers, got)
            for page in ("/metrics", "/healthz"):
                assert request(net.port, page, headers={})[0] == 200, page
            assert request(net.port, "/jobs")[0] == (200 if options else 401)


def tokens(where, _port):
    path = where + "/token"
    with open(path, "w") as f:
        f.write("s3cret\n")
    with Net("http", "127.0.0.1:0", "-t", path) as net:
        net.ask("publish")

        def status(value, where="/metrics"):
            return request(net.port, where,
                           headers={"Authorization": value} if value else {})[0]
        assert status("Bearer s3cret") == 200
        for bad in (None, "", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret1",
                    "Bearer S3cret", "Basic s3cret", "s3cret", "Bearer s3crets3cret",
                    "Bearer " + "s" * 10000):
            got = status(bad)
            assert got in (401, 431, 413, 400), (bad and bad[:30], got)
        for where_to in ("/jobs", "/evidence", "/evidence/a.json", "/", "/nothing"):
            assert status(None, where_to) == 401, where_to
        assert status(None, "/healthz") == 200
        with open(path + ".new", "w") as f:
            f.write("other")
        os.rename(path + ".new", path)
        assert until(lambda: status("Bearer other") == 200, 5)
        assert status("Bearer s3cret") == 401
        os.unlink(path)
        assert until(lambda: status("Bearer other") == 401, 5), "let in without a token"
        assert net.stats()["refused"] > 10


def by_socket(path, page, uid=None):
    """The status of a request by the socket, without a token, as `uid` (none: our own);
    "refused": one cannot connect."""
    code = ("import os,socket,sys\n"
            "if sys.argv[3]: os.setgroups([]); os.setuid(int(sys.argv[3]))\n"
            "s=socket.socket(socket.AF_UNIX)\n"
            "s.settimeout(10)\n"
            "try: s.connect(sys.argv[1])\n"
            "except OSError: print('refused'); sys.exit()\n"
            "s.sendall(('GET %s HTTP/1.0\\r\\n\\r\\n' % sys.argv[2]).encode())\n"
            "print(s.recv(100).split()[1].decode())\n")
    return subprocess.run([sys.executable, "-c", code, path, page, str(uid or "")], text=True,
                          stdout=subprocess.PIPE, timeout=20, check=True).stdout.strip()


def local(where, _port):
    """All pages for root by a socket, whatever token there is; for nobody else."""
    nobody_id, said = 65534, ""
    with open(where + "/token", "w") as f:
        f.write("s3cret\n")
    for options in (["-T", own_token(where)], ["-t", where + "/token"], []):
        folder = tempfile.mkdtemp(prefix="pt-local-")
        os.chmod(folder, 0o755)
        path = folder + "/socket"
        try:
            with Net("http", "127.0.0.1:0", "-e", where, "-u", path, *options) as net:
                net.ask("publish")
                assert os.lstat(path).st_mode & 0o777 == 0o600
                for page in ("/metrics", "/healthz", "/jobs", "/evidence"):
                    assert by_socket(path, page) == "200", page
                for page in ("/nothing", "/evidence/../token", "/evidence/a.json"):
                    assert by_socket(path, page) == "404", page
                # the port asks as it did
                assert request(net.port, "/jobs", headers={})[0] == 401
                if os.geteuid() == 0:
                    assert by_socket(path, "/jobs", nobody_id) == "refused"
                    os.chmod(path, 0o666)  # somebody's mistake
                    for page in ("/jobs", "/evidence", "/evidence/a.json"):
                        assert by_socket(path, page, nobody_id) == "401", page
                    assert by_socket(path, "/jobs") == "200"
                else:
                    said = "not as another user: needs root"
                # whoever holds connections to it keeps no scrape out
                held = [socket.socket(socket.AF_UNIX) for _ in range(40)]
                for s in held:
                    s.setblocking(False)
                    s.connect_ex(path)
                assert request(net.port, "/healthz", source=OTHER)[0] == 200
                assert until(lambda: by_socket(path, "/jobs") == "200", 20)
                for s in held:
                    s.close()
                assert net.close() == 0
            assert os.listdir(folder) == [], os.listdir(folder)
            with Net("http", "127.0.0.1:0", "-u", path) as net:
                net.proc.kill()
                net.proc.wait()
            assert os.path.exists(path)
            with Net("http", "127.0.0.1:0", "-u", path) as net:
                assert by_socket(path, "/healthz") == "200"
        finally:
            shutil.rmtree(folder)
    return said


def old_tls(context):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def meet(client, server):
    """Whether two contexts agree, without a socket."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b, server_hostname="127.0.0.1"),
            server.wrap_bio(b, a, server_side=True)]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
        if not ends:
            return True
    return False


def tls(where, _port):
    if not shutil.which("openssl"):
        return "skip: no openssl here"
    pem, key = certificate(where, "server")
    with Net("http", "127.0.0.1:0", "-c", pem, "-k", key) as net:
        net.ask("publish")
        good = ssl.create_default_context(cafile=pem)
        assert request(net.port, tls=good)[0] == 200
        try:
            request(net.port, tls=ssl.create_default_context())
            raise AssertionError("taken without a check")
        except ssl.SSLError:
            pass
        old = old_tls(ssl.create_default_context(cafile=pem))
        server = old_tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        server.load_cert_chain(pem, key)
        if meet(old, server):  # this client could speak it
            try:
                request(net.port, tls=old)
                raise AssertionError("TLS 1.1 was taken")
            except (ssl.SSLError, ConnectionError):
                said = "TLS 1.1 is refused"
        else:
            said = "no TLS 1.1 here to try"
        assert b"pipetrace" not in raw(net.port, b"GET /metrics HTTP/1.0\r\n\r\n")
        # those who never say hello
        mute = [socket.create_connection(("127.0.0.1", net.port)) for _ in range(30)]
        for i in range(20):
            assert request(net.port, tls=good)[0] == 200, i
        for s in mute:
            s.close()
        assert net.close() == 0
    return said


# ---- who comes to do harm -------------------------------------------------------------

def slow(where, port, net, long):
    """Clients that say a byte now and then, and clients that do not read."""
    held = []
    for i in range(60):
        s = socket.create_connection(("127.0.0.1", port), timeout=5)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
        held.append(s)
    begin, worst, gone = time.monotonic(), 0, 0
    assert until(lambda: net.stats()["connections"] <= 16, 5), net.stats()
    while time.monotonic() < begin + 13:
        for s in list(held):
            try:
                s.sendall(b"a")
            except OSError:
                held.remove(s)
                s.close()
        worst = max(worst, alive(port), alive(port, source="127.0.0.1"))
        time.sleep(0.5)
    assert not held, "%d are still held after 13 s" % len(held)
    # A thousand times more than a socket's buffer is asked for, and nothing read.
    big = where + "/evidence/big.ptrace"
    with open(big, "wb") as f:
        f.truncate(1 << 20)
    readers = []
    for _ in range(16):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(5)
        s.connect(("127.0.0.1", port))
        s.sendall(b"GET /evidence/big.ptrace HTTP/1.1\r\nHost: x\r\n" + BEAR.encode() + b"\r\n")
        readers.append(s)
    time.sleep(0.5)
    for _ in range(5):
        worst = max(worst, alive(port))
    # Whoever holds all that it may has to wait for its own.
    try:
        own = request(port, limit=3)[0]
    except OSError:
        own = "closed"
    assert own == "closed", own
    if long:
        assert until(lambda: net.stats()["connections"] == 0, 60, 1), net.stats()
    for s in readers:
        s.close()
    assert until(lambda: net.stats()["connections"] == 0, 10), net.stats()
    alive(port, source="127.0.0.1")
    return "scrapes took %.0f ms at most" % (worst * 1e3)


def many(port, net, count, source):
    """Holds `count` connections, or as many as are let in. [sockets]"""
    sockets = []
    for i in range(count):
        s = socket.socket()
        s.setblocking(False)
        s.bind((source(i), 0))
        s.connect_ex(("127.0.0.1", port))
        sockets.append(s)
        if i % 200 == 199:
            time.sleep(0.01)
    return sockets


def thousands(_where, port, net, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = min(1500, count)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard - more - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + more + 200), hard))
    _, fds, rss, _ = net.usage()
    worst, scrapes, done = [0], [0], threading.Event()
    errors = []

    def scrape():
        while not done.is_set():
            try:
                worst[0] = max(worst[0], alive(port, limit=20))
                scrapes[0] += 1
            except Exception as e:  # told below
                errors.append(e)
            time.sleep(0.05)
    t = threading.Thread(target=scrape)
    t.start()
    begin = time.monotonic()
    try:
        held = many(port, net, count, lambda i: "127.0.0.1")
    except OSError:
        done.set()
        raise
    time.sleep(1)
    stats, (_, most_fds, most_rss, _) = net.stats(), net.usage()
    took = time.monotonic() - begin
    # ... and from a hundred addresses at once
    held += many(port, net, more, lambda i: "127.0.1.%d" % (1 + i % 100))
    time.sleep(1)
    stats_of_all, (_, all_fds, all_rss, _) = net.stats(), net.usage()
    for _ in range(5):
        alive(port, limit=20)
    done.set()
    t.join(30)
    for s in held:
        s.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not errors, errors[0]
    assert scrapes[0] >= 5, scrapes
    assert stats["connections"] <= 16 + 64 + 2 and most_fds <= fds + 16 + 64 + 2, (stats, most_fds)
    assert stats_of_all["connections"] <= 256 + 64 and all_fds <= fds + 320, (stats_of_all, all_fds)
    assert max(most_rss, all_rss) <= rss + 16384, (rss, most_rss, all_rss)
    assert until(lambda: net.stats()["connections"] == 0, 20), net.stats()
    return ("%d connections in %.1f s, %d of them held; 1,500 from 100 addresses, %d held; "
            "%d scrapes beside, %.0f ms at most; %d KiB more" % (
                count, took, stats["connections"], stats_of_all["connections"], scrapes[0],
                worst[0] * 1e3, max(most_rss, all_rss) - rss))


def hammer(_where, port, net):
    """As many requests as a core can make: the thread keeps to its share of one. What
    the clock of a busy machine adds is the reason for a second try."""
    for last in (False, True):
        served, share, worst = hammer_once(port, net)
        if share < 0.26 or last:
            break
    # a fifth of a core, and a run of libmicrohttpd more at the end of each window
    assert share < 0.26, share
    return "%s%d requests, %.0f %% of a core, scrapes %.0f ms at most" % (
        "second try: " if last else "", served, share * 100, worst * 1e3)


def hammer_once(port, net):
    code = ("import socket,sys,time\n"
            "end=time.time()+4\n"
            "n=0\n"
            "while time.time()<end:\n"
            "  try:\n"
            "    s=socket.create_connection(('127.0.0.1',%d),timeout=2)\n"
            "    s.sendall(b'GET /metrics HTTP/1.0\\r\\n\\r\\n')\n"
            "    while s.recv(65536): pass\n"
            "    n+=1\n"
            "  except OSError: pass\n"
            "print(n)\n" % port)
    procs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
             for _ in range(3)]
    time.sleep(0.7)
    cpu, t0, worst = net.usage()[3], time.monotonic(), 0
    while time.monotonic() < t0 + 2.5:
        worst = max(worst, alive(port))
        time.sleep(0.1)
    share = (net.usage()[3] - cpu) / (time.monotonic() - t0)
    served = sum(int(p.communicate(timeout=20)[0]) for p in procs)
    return served, share, worst


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--long", action="store_true")
    args = ap.parse_args()
    if not os.path.exists(PROGRAM):
        print("no build/tests/e2e/agent_net: make e2e")
        return 77
    t = Tests()
    with tempfile.TemporaryDirectory(prefix="pt-http-") as where:
        t.run("pages", pages, where, 0)
        t.run("nobody", nobody, where, 0)
        t.run("tokens", tokens, where, 0)
        t.run("local", local, where, 0)
        t.run("tls", tls, where, 0)
        os.mkdir(where + "/evidence")
        with Net("http", "127.0.0.1:0", "-e", where + "/evidence", "-n", 16,
                 "-T", own_token(where), limit=300 if args.long else 150) as net:
            port = net.port
            net.ask("publish")
            alive(port)
            t.run("swapped", swapped, where, port, net)
            before = net.usage()
            t.run("paths", paths, where, port, net)
            t.run("requests", requests, where, port, net)
            t.run("garbage", garbage, where, port, net)
            t.run("slow", slow, where, port, net, args.long)
            t.run("thousands", thousands, where, port, net, 10000 if args.long else 2000)
            t.run("hammer", hammer, where, port, net)

            def leaks():
                assert until(lambda: net.stats()["connections"] == 0, 20), net.stats()
                alive(port)
                after = net.usage()
                assert until(lambda: net.usage()[:2] == before[:2], 10), (before, net.usage())
                assert after[2] <= before[2] + 16384, (before, after)
                assert net.close() == 0
                return "%d threads, %d descriptors, %d to %d KiB" % (
                    after[0], before[1], before[2], after[2])
            t.run("nothing_leaks", leaks)
    return t.end()


if __name__ == "__main__":
    sys.exit(main())
