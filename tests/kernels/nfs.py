# SPDX-License-Identifier: BSD-2-Clause
"""Files that come by NFS: the guest's part, and whether its lines are right.

The guest is server and client. The server is the kernel's; what mountd and exportfs
would answer it (who the client is, which folder the file handle's number means, how
that is exported) is written into its caches, so that no package is needed. The truth
is the jobs' own: reads.c and simjob count and time what they read.
"""
import json
import os
import re
import shutil
import subprocess

import judge

NAME = "nfs"    # the boot, and reads.c's variant in it
MODULES = ("nfsd", "nfsv4", "sch_netem")
AT = "/nfs"
SIM = ("simjob", "libcudart.so.12")
# The training job: one reader, so that nobody else brings in what it reads, and fewer
# files than a report lists.
ITEMS, ITEM_BYTES, FILES, PREFETCH = 4, 65536, 40, 2
SECONDS = 15
DELAY_MS = 10   # each way, so that waiting for the server is waiting and no work

# Numbers of include/uapi/linux/nfsd/export.h: INSECURE_PORT 0x2, ASYNC 0x10,
# NOSUBTREECHECK 0x400, FSID 0x2000. A file handle's kind 1 is the export's number.
# Expiry is in seconds since 1970. NFS 4 alone needs no portmapper and no lock daemon. For
# ten seconds, the least there is, the server opens no file: clients of before may come.
SERVER = r"""
dmesg -n 1
mkdir -p /data/served %(at)s
mount -t nfsd none /proc/fs/nfsd || echo "error no nfsd"
echo "-2 -3 +4 +4.1 +4.2" > /proc/fs/nfsd/versions
echo 10 > /proc/fs/nfsd/nfsv4gracetime
echo "tcp 2049" > /proc/fs/nfsd/portlist
echo 'nfsd 127.0.0.1 2147483647 guest' > /proc/net/rpc/auth.unix.ip/channel
echo 'guest 1 \x00000000 2147483647 /data/served' > /proc/net/rpc/nfsd.fh/channel
echo "guest /data/served 2147483647 $((0x2412)) 65534 65534 0" > /proc/net/rpc/nfsd.export/channel
echo 4 > /proc/fs/nfsd/threads
timeout 60 mount -t nfs4 -o vers=4.2,proto=tcp,sec=sys,addr=127.0.0.1,clientaddr=127.0.0.1 \
	127.0.0.1:/ %(at)s || { echo "error no mount"; dmesg | tail -20; }
echo "begin mount"; grep " %(at)s " /proc/self/mountinfo; echo "end mount $?"
"""
# Once through one door after the other, then a trace's report, then a training job
# whose files were made on the server's side.
PART = SERVER + """
echo "begin report"
mkdir %(at)s/report
echo g | timeout %(patience)d /bin/pipetrace --json /tmp/r.json -- /bin/reads -o cold,early \\
	%(at)s/report %(report_files)d %(report_calls)d 4 7 /tmp/truth > /tmp/text 2>&1
echo "status $?"
sed 's/^/text /' /tmp/text
sed 's/^/truth /' /tmp/truth
sed 's/^/json /' /tmp/r.json
echo "end report 0"
for d in %(plain)s; do variant $d nfs %(at)s /bin/reads /bin/doors; done
export LD_LIBRARY_PATH=/sim
simjob="/sim/simjob --files %(job_files)d --item-bytes %(item)d --items %(items)d --item-cpu-us 0"
if [ -x /sim/simjob ]; then
	$simjob --read-dir /data/served/job --workers 0 --steps 1 > /dev/null 2>&1
	/sim/tc qdisc add dev lo root netem delay %(delay)dms || echo "error no delay"
	echo "begin job"
	COLUMNS=100 timeout %(patience)d /bin/pipetrace --json /tmp/j.json -- $simjob \\
		--read-dir %(at)s/job --cold --workers 1 --prefetch %(prefetch)d \\
		--launches 2 --seconds %(seconds)d --truth /tmp/job.truth > /tmp/text 2>&1
	echo "status $?"
	sed 's/^/text /' /tmp/text
	sed 's/^/truth /' /tmp/job.truth
	sed 's/^/json /' /tmp/j.json
	echo "end job 0"
fi
umount %(at)s
echo 0 > /proc/fs/nfsd/threads
"""


def words():
    return dict(at=AT, item=ITEM_BYTES, items=ITEMS, job_files=FILES, prefetch=PREFETCH,
                delay=DELAY_MS, seconds=SECONDS)


def files(build):
    """({path in the guest: path here} of the training job, what delays its packets, and
    the libraries that they load; None or why it cannot be had)."""
    out = {"/sim/" + n: os.path.join(build, "sim", n) for n in SIM}
    if not all(os.access(p, os.X_OK) for p in out.values()):
        return {}, "the simulated runtime is not built (make sim)"
    tc = shutil.which("tc", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if not tc:
        return {}, "there is no tc (tools/install-deps kernels)"
    out["/sim/tc"] = tc
    for path in list(out.values()):
        said = subprocess.run(["ldd", path], stdout=subprocess.PIPE, timeout=20).stdout
        for lib in re.findall(r"(/\S+) \(0x", said.decode()):
            if os.path.basename(lib) not in SIM:
                out[lib] = lib
    return out, None


def put(build, top):
    """Copies those files into the guest's root `top`."""
    for there, here in files(build)[0].items():
        os.makedirs(os.path.dirname(top + there), exist_ok=True)
        shutil.copy(here, top + there)


def lies_there(f):
    return (f["fs"], f["fs_class"], f["device"], f["cached_share"]) == \
        ("nfs4", "network", None, None)


def judge_report(kernel):
    """Reads and bytes are in judge.py; here, where the files lie."""
    report = kernel.report()
    if not report:
        return
    lines = [x.split() for x in kernel.parts["report"]]
    truth = {(int(w[2]), w[3]): w[1] for w in lines if w[0] == "truth" and len(w) == 9}
    have = [f for f in report["files"] if (f["dev"], str(f["inode"])) in truth]
    wrong = [f for f in have if not lies_there(f)]
    # cold: each kind of call had to fetch
    blocked = {truth[f["dev"], str(f["inode"])] for f in have if (f["blocked_s"] or 0) > 0}
    yield len(have) > 10 and not wrong, "report: %d files are nfs4, network, on no disk%s" % (
        len(have) - len(wrong), "; not %s" % wrong[0] if wrong else "")
    yield {"read", "readv", "pread", "preadv2"} <= blocked, \
        "report: blocked reads of %s" % ", ".join(sorted(blocked))
    yield not report["disks"], "report: no disk is the target's: %s" % (
        [d["name"] for d in report["disks"]] or "none")


def judge_job(kernel, build):
    why = files(build)[1]
    if why:
        yield None, "a training job: " + why
        return
    lines = kernel.parts.get("job", [])
    report = kernel.report("job")
    if not report:
        yield False, "job: no report: %s" % " | ".join(lines)[-400:]
        return
    steps = [json.loads(x[6:]) for x in lines if x.startswith("truth {\"step\"")]
    have = [f for f in report["files"] if (f["path"] or "").startswith(AT + "/job/")]
    yield len(have) == FILES and all(map(lies_there, have)), \
        "job: %d files are nfs4, network, on no disk" % len(have)
    # Batches that were made and not used any more are in no line.
    extra, used, size = PREFETCH + 1, len(steps), ITEMS * ITEM_BYTES
    seen = sum(f["bytes"] or 0 for f in have)
    yield used > 20 and used * size <= seen <= (used + extra) * size, \
        "job: %d bytes were read for %d batches of %d" % (seen, used, size)
    # At least what the packets are held back for each item, whose file is in no cache; at
    # most what the job saw go by in opening, reading and closing files that was no CPU time.
    least = used * ITEMS * 2 * DELAY_MS / 1e3
    away = [(t["totals"]["read"][0] - t["totals"]["read"][1]) / 1e9 for t in steps]
    most = sum(away) + extra * max(away, default=0)
    blocked = sum(f["blocked_s"] or 0 for f in have)
    yield least <= blocked <= most, \
        "job: %.2f s blocked in reads, of %.2f s at least by the delay and %.2f s at most by " \
        "its own clocks" % (blocked, least, most)
    ids = [v["id"] for v in report["verdicts"]]
    text = "\n".join(x[5:] for x in lines if x.startswith("text "))
    share = sum(c["share"] or 0 for c in report["data_wait"]["causes"]
                if c.get("fs_class") == "network")
    evidence = [e["metric"] for v in report["verdicts"] if v["id"] == "io_bound"
                for e in v["evidence"]]
    yield "io_bound" in ids and "data_wait.network_fs_share" in evidence and \
        "network disk" in text, \
        "job: %s; %.0f %% of the data wait is for the network disk" % (
            ", ".join(ids) or "no verdict", 100 * share)
    yield not report["disks"] and not report["peers"], \
        "job: no disk and no peer is its own: %d, %d" % (len(report["disks"]), len(report["peers"]))


def judge_kernel(kernel, build):
    """Yields (whether it is right or None: not tried, text)."""
    if "finished" not in kernel.lines:
        yield False, "the run did not come to its end; last line: %s" % (
            kernel.lines[-1] if kernel.lines else "none")
    mount = kernel.parts.get("mount", [])
    if kernel.status.get("mount") != 0:
        yield False, "NFS cannot be mounted: %s" % " | ".join(
            x for x in kernel.lines if "begin mount" not in x)[-600:]
        return
    yield " nfs4 " in mount[0], "mounted: %s" % mount[0]
    yield from kernel.judge_report()
    yield from judge_report(kernel)
    opens = judge.OPENS[kernel.name.split("+")[0]]
    for d in judge.CLAIMS:
        if d in opens:
            yield from kernel.judge_door(d, opens, NAME)
    yield from judge_job(kernel, build)


def verdicts(kernel, doors, build):
    """What judge_kernel(), or judge.py of any other boot, says."""
    return list(judge_kernel(kernel, build) if kernel.name.endswith("+" + NAME)
                else kernel.judge(doors))
