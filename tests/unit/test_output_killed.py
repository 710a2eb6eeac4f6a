# SPDX-License-Identifier: BSD-2-Clause
"""An export that is killed leaves nothing: neither half a file nor a temporary name. Then
the same export that is not killed is whole."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kept  # noqa: E402

TRIES = 12
FORMATS = ("sqlite", "csv", "html")


def start(folder, raw, name):
    return subprocess.Popen([kept.PROGRAM, "export", "--" + name, os.path.join(folder, name),
                             raw], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ended(p, seconds):
    """Whether it ends by itself in that time."""
    try:
        p.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def knows_unnamed(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
        return True
    except OSError:
        return False


def whole(folder):
    db = sqlite3.connect(os.path.join(folder, "sqlite"))
    steps = db.execute("SELECT count(*) FROM steps").fetchone()[0]
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
    with open(os.path.join(folder, "csv/steps.csv"), encoding="utf-8") as f:
        assert len(f.readlines()) == steps + 1 > 1
    with open(os.path.join(folder, "html"), encoding="utf-8") as f:
        assert f.read().rstrip().endswith("</html>")


def main():
    if not os.access(kept.PROGRAM, os.X_OK):
        print("build/pipetrace is not built")
        return 77
    passed = failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        raw = kept.unpack_named("golden/ahead", tmp)
        good, bad = os.path.join(tmp, "good"), os.path.join(tmp, "bad")
        os.mkdir(good)
        os.mkdir(bad)
        if not knows_unnamed(bad):
            print("the file system of %s knows no files without a name" % tmp)
            return 77
        r = random.Random(5)
        for name in FORMATS:
            t0 = time.monotonic()
            p = start(good, raw, name)
            said, took = p.communicate(timeout=120)[0].decode(), time.monotonic() - t0
            if p.returncode:
                print("not ok %s: %s" % (name, said))
                return 1
            killed, left = 0, set()
            for _ in range(TRIES):
                p, t0 = start(bad, raw, name), time.monotonic()
                if ended(p, r.uniform(0.2, 1) * took):
                    # the one before had a busier machine
                    took = min(took, time.monotonic() - t0)
                p.send_signal(signal.SIGKILL)
                killed += p.wait(60) == -signal.SIGKILL
                # whoever gives a folder its name lives on, for less than a millisecond
                p.stdout.read()
                p.stdout.close()
                left |= {n for n in os.listdir(bad) if n != name}
                subprocess.run(["rm", "-rf", os.path.join(bad, name)], check=True)
            ok = killed > TRIES / 4 and not left
            print("%s %s: %d of %d killed, left: %s" % ("ok" if ok else "not ok", name, killed,
                                                        TRIES, sorted(left) or "nothing"))
            passed, failed = passed + ok, failed + (not ok)
        whole(good)
        print("ok whole")
        passed += 1
        odd = [n for n in os.listdir(good) if n not in FORMATS]
        if odd or {os.stat(os.path.join(good, "csv", n)).st_mode & 0o777
                   for n in os.listdir(os.path.join(good, "csv"))} != {0o600}:
            print("not ok names and modes: %s" % odd)
            failed += 1
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
