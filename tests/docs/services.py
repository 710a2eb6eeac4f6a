# SPDX-License-Identifier: BSD-2-Clause
"""A Slurm cluster of one node, Docker and Podman, each in a folder and for one test. A `stack`
(contextlib.ExitStack) ends what was started."""
import contextlib
import glob
import io
import os
import re
import signal
import socket
import subprocess
import tarfile
import time

from blocks import TOP
from place import end, start

# A container's default is more than a hard limit of here may allow
LIMITS = ("nofile=1024:1024", "nproc=4096:4096")
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
SLURM_CONF = """ClusterName=pipetrace
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Wrong(Exception):
    pass


def tell(argv, env, data=b"", **more):
    """What it says; Wrong where it fails."""
    try:
        done = subprocess.run(argv, env=env, input=data, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, timeout=120, **more)
    except subprocess.TimeoutExpired as e:
        raise Wrong("%s: took more than 120 s" % argv[0]) from e
    text = COLOUR.sub("", done.stdout.decode("utf-8", "replace"))
    if done.returncode:
        raise Wrong("%s: status %d: %s" % (argv[0], done.returncode, text[-900:]))
    return text


def until(what, ready, seconds=30):
    """The first true answer."""
    by, why = time.monotonic() + seconds, ""
    while time.monotonic() < by:
        try:
            answer = ready()
            if answer:
                return answer
        except Wrong as e:
            why = ": %s" % e
        time.sleep(0.3)
    raise Wrong("%s: not within %d s%s" % (what, seconds, why))


def daemon(stack, tmp, argv, env):
    """Ends with the stack; what has it left after SIGTERM and 20 s is killed."""
    def stop():
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        end(process)
    with open("%s/%s.out" % (tmp, argv[0]), "wb") as f:
        process = start(argv, env=env, stdout=f, stderr=f)
    stack.callback(stop)


def free_ports(n):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [s.getsockname()[1] for s in found]


def no_job(env):
    return not tell(["squeue", "-h"], env)


def cluster(stack, tmp, env):
    at = tmp + "/slurm"
    os.makedirs(at + "/state")
    os.makedirs(at + "/spool")
    os.chmod(tmp, 0o755)  # munged wants its socket to be reachable for all
    env["SLURM_CONF"] = at + "/slurm.conf"
    with open(env["SLURM_CONF"], "w", encoding="utf-8") as f:
        f.write(SLURM_CONF.format(at=at, ports=free_ports(2), host=socket.gethostname().split(".")[0]))
    with open(at + "/munge.key", "wb", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
        f.write(os.urandom(1024))
    files = ["--%s=%s/munge.%s" % (k, at, v) for k, v in (
        ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"),
        ("seed-file", "seed"))]
    daemon(stack, tmp, ["munged", "-F", *files], env)
    until("munged", lambda: os.path.exists(at + "/munge.socket"))
    daemon(stack, tmp, ["slurmctld", "-D", "-i"], env)
    daemon(stack, tmp, ["slurmd", "-D"], env)
    until("an idle node", lambda: "idle" in tell(["sinfo", "-h", "-o", "%T"], env))
    # a step of a job that still runs would outlive its daemons
    stack.callback(until, "the end of all jobs", lambda: no_job(env))
    stack.callback(tell, ["scancel", "-u", "root"], env)


def dockerd(stack, tmp, env):
    at = tmp + "/docker"
    env["DOCKER_HOST"] = "unix://%s/sock" % at
    env["DOCKER_CONFIG"] = at
    # no network, so that nothing is done to this machine's
    daemon(stack, tmp, ["dockerd", "--data-root", at + "/root", "--exec-root", at + "/exec",
                        "--pidfile", at + "/pid", "--host", env["DOCKER_HOST"], "--iptables=false",
                        "--bridge=none", "--storage-driver=vfs",
                        "--exec-opt=native.cgroupdriver=cgroupfs",
                        *("--default-ulimit=" + limit for limit in LIMITS)], env)
    until("dockerd", lambda: tell(["docker", "version"], env))


def podman(tmp, env):
    at = tmp + "/podman"
    os.makedirs(at)
    settings = {"CONTAINERS_CONF": '[containers]\ndefault_ulimits = [{limits}]\nnetns = "none"\n'
                                   '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n'
                                   'events_logger = "file"\ntmp_dir = "{at}/tmp"\n',
                "CONTAINERS_STORAGE_CONF": '[storage]\ndriver = "vfs"\ngraphroot = "{at}/root"\n'
                                           'runroot = "{at}/run"\n'}
    for name, text in settings.items():
        env[name] = "%s/%s" % (at, name)
        with open(env[name], "w", encoding="utf-8") as f:
            f.write(text.format(at=at, limits=", ".join('"%s"' % limit for limit in LIMITS)))


def container(stack, who, tmp, env):
    """Its ID. An image that has only the links into /usr, which is this machine's."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in filter(os.path.islink, ("/bin", "/lib", "/lib64")):
            tar.add(path)
    tell([who, "import", "-", "job:test"], env, data=packed.getvalue())
    seen = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", "%s:%s:ro" % (TOP, TOP),
            "%s:%s" % (tmp, tmp)]
    stack.callback(tell, [who, "rm", "-f", "job"], env)
    tell([who, "run", "-d", "--name", "job", "-w", tmp, *sum((["-v", v] for v in seen), []),
          "-e", "PYTHONDONTWRITEBYTECODE=1", "job:test", "sh", "-c",
          "trap exit TERM; python3 train.py & wait"], env)
    try:
        until("training", lambda: "READY" in tell([who, "logs", "job"], env))
    except Wrong as e:
        raise Wrong("%s: %s" % (e, tell([who, "logs", "job"], env)[-900:])) from e
    return tell([who, "inspect", "-f", "{{.Id}}", "job"], env).strip()


def groups():
    return {p for name in ("docker", "libpod_parent")
            for p in glob.glob("/sys/fs/cgroup/%s" % name) + glob.glob("/sys/fs/cgroup/*/%s" % name)}


def remove_groups(but):
    """Empty ones of what this test has run; the kernel keeps those in use."""
    for top in groups() - but:
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
