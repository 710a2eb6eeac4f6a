# SPDX-License-Identifier: BSD-2-Clause
"""The agent's example configuration, systemd unit and Kubernetes manifests: that they
are valid, agree with each other and with the program."""
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests"))
import totals  # noqa: E402
PACKAGING = os.path.join(TOP, "tools/packaging")
PIPETRACE = os.path.join(TOP, "build/pipetrace")
try:
    import yaml
except ImportError:
    yaml = None


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def capabilities():
    """What the agent keeps."""
    kept = {"PT_KEEP_TRACE", "PT_KEEP_LOOK"}  # pt_capture_keep(), where CAP_BPF is enough
    source = read("user/base/privileges.c")
    listed = re.search(r"wanted\[\] = \{(.*?)\n\};", source, re.S).group(1)
    return {cap for cap, bit in re.findall(r"CAP_(\w+), (\w+)", listed) if bit in kept}


def check(path):
    done = subprocess.run([PIPETRACE, "agent", "--config", path, "--check"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20,
                          check=False, env=dict(os.environ, NODE_NAME="n1"))
    return done.returncode, done.stdout.decode()


def checked(text):
    """The same for a text; who runs the tests owns the file."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        f.write(text)
        f.flush()
        os.chmod(f.name, 0o600)
        return check(f.name)


@unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
class Configuration(unittest.TestCase):
    def test_examples(self):
        for name in ("agent.conf", "kubernetes/agent.conf"):
            self.assertEqual(checked(read("tools/packaging", name)), (0, ""), name)

    def test_all_lines_that_are_commented_out(self):
        text = read("tools/packaging/agent.conf")
        open_ = re.sub(r"^# ((?:\w[\w-]* = \S)|\[job )", r"\1", text, flags=re.M)
        self.assertGreater(open_.count("\n[job "), 1)
        self.assertEqual(checked(open_), (0, ""))

    def test_every_key_is_in_the_example(self):
        keys = re.findall(r'\{ "(\w+)", "([\w-]+)", [A-Z]+,', read("user/agent/config.c"))
        self.assertGreater(len(keys), 20)
        section, there = None, set()
        for line in read("tools/packaging/agent.conf").splitlines():
            head = re.match(r"\[(\w+)\]", line)
            section = head.group(1) if head else section
            pair = re.match(r"(?:# )?([\w-]+) = ", line)
            if pair:
                there.add((section, pair.group(1)))
        self.assertEqual(set(keys) - there, set())


class Systemd(unittest.TestCase):
    def setUp(self):
        self.text = read("tools/packaging/pipetrace-agent.service")

    def test_capabilities_are_the_programs(self):
        listed = re.search(r"^CapabilityBoundingSet=(.*)$", self.text, re.M).group(1)
        self.assertEqual(set(re.findall(r"CAP_(\w+)", listed)), capabilities())

    def test_verify(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("there is no systemd-analyze")
        with tempfile.TemporaryDirectory() as tmp:
            unit = os.path.join(tmp, "pipetrace-agent.service")
            with open(unit, "w", encoding="utf-8") as f:
                f.write(self.text.replace("/usr/local/bin/pipetrace", "/bin/true"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=60, check=False)
        said = [line for line in done.stdout.decode().splitlines() if "pipetrace-agent" in line]
        self.assertEqual(said, [])


class Debian(unittest.TestCase):
    def test_what_it_is_built_with(self):
        """The package asks for what tools/install-deps brings, but for what is always there
        where packages are built."""
        listed = re.search(r'^BUILD="([^"]*)"', read("tools/install-deps"), re.M).group(1)
        field = re.search(r"^Build-Depends:(.*?)^\S", read("tools/packaging/debian/control"),
                          re.M | re.S).group(1)
        self.assertEqual(set(listed.split()) - {"gcc", "libc6-dev", "make"} -
                         set(re.findall(r"[a-z0-9.+-]+", field)), set())

    def test_who_installs_has_no_daemon(self):
        self.assertIn("dh_installsystemd --no-enable ", read("tools/packaging/debian/rules"))


@unittest.skipUnless(yaml, "there is no python3-yaml")
class Workflows(unittest.TestCase):
    """Their steps are commands of the project, as anyone can give them by hand."""

    def steps(self):
        folder = os.path.join(TOP, ".github/workflows")
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                jobs = yaml.safe_load(f)["jobs"]
            for job in jobs.values():
                self.assertIn("timeout-minutes", job)
                yield from (step["run"] for step in job["steps"] if "run" in step)

    def test_commands_are_there(self):
        makefile, deps = read("Makefile"), read("tools/install-deps")
        known = 0
        for run in self.steps():
            words = run.split()
            self.assertNotIn("\n", run.strip(), "one command a step")
            if words[0] == "make":
                for goal in [w for w in words[1:] if re.fullmatch(r"[a-z]\w*", w)]:
                    self.assertRegex(makefile, r"(?m)^%s:" % goal)
                    known += 1
            elif re.match(r"(tools|tests)/", words[0]):
                self.assertTrue(os.access(os.path.join(TOP, words[0]), os.X_OK), run)
                known += 1
            if words[0] == "tools/install-deps":
                for what in words[1:]:
                    self.assertRegex(deps, r"(?m)^\t%s\)" % what)
        self.assertGreater(known, 10)


def configurations():
    """{name: text}: each file of an agent's configuration that is packaged."""
    found = {}
    for folder, _, names in os.walk(PACKAGING):
        for name in names:
            text = read(folder, name)
            if re.search(r"^\[http\]$", text, re.M):
                found[os.path.relpath(os.path.join(folder, name), PACKAGING)] = text
    return found


@unittest.skipUnless(os.access(PIPETRACE, os.X_OK), "build/pipetrace is not built")
@unittest.skipUnless(os.geteuid() == 0, "needs root")
class WhatIsOpen(unittest.TestCase):
    """Each packaged configuration by a real agent: what jobs do is for no one without a
    token but root by its socket."""

    def ask(self, port, page, token=None):
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        conn.request("GET", page, headers={"Authorization": "Bearer " + token} if token else {})
        status = conn.getresponse().status
        conn.close()
        return status

    def run_agent(self, text, tmp):
        """The agent that is, but for folders and port, so configured, and its port."""
        text = re.sub(r"(?m)^state = .*", "state = %s/state" % tmp, text)
        text = re.sub(r"(?m)^(listen = .*):\d+$", r"\1:0", text)
        with open(tmp + "/agent.conf", "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(f.name, 0o600)
        agent = subprocess.Popen([PIPETRACE, "agent", "--config", f.name],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=dict(os.environ, NODE_NAME="n1"))
        watch = threading.Timer(60, agent.kill)
        watch.start()
        self.addCleanup(watch.cancel)
        said = ""
        for line in agent.stdout:
            said += line
            port = re.search(r"port (\d+)", line)
            if port:
                return agent, int(port.group(1))
        agent.wait()
        if "Operation not permitted" in said or "ermission" in said:
            self.skipTest("the agent may not start here: " + said.strip())
        raise AssertionError(said)

    def test_each(self):
        all_ = configurations()
        self.assertEqual(set(all_), {"agent.conf", "kubernetes/agent.conf"})
        for name, text in all_.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as tmp:
                agent, port = self.run_agent(text, tmp)
                try:
                    for page in ("/jobs", "/evidence", "/evidence/a.json", "/"):
                        self.assertEqual(self.ask(port, page), 401, page)
                        self.assertEqual(self.ask(port, page, "x" * 64), 401, page)
                    self.assertEqual(self.ask(port, "/healthz"), 200)
                    for made in ("token", "socket"):
                        st = os.lstat("%s/state/%s" % (tmp, made))
                        self.assertEqual((st.st_uid, st.st_mode & 0o777), (0, 0o600), made)
                    with open(tmp + "/state/token", encoding="ascii") as f:
                        self.assertIn(self.ask(port, "/jobs", f.read().strip()), (200, 503))
                finally:
                    agent.terminate()
                    agent.stdout.read()
                    agent.stdout.close()
                    self.assertEqual(agent.wait(20), 0)
                self.assertFalse(os.path.exists(tmp + "/state/socket"))

    def test_nothing_else_says_how_it_is_configured(self):
        """The unit, the manifests and the image run it by these files alone."""
        for name in ("pipetrace-agent.service", "Containerfile", "Containerfile.debian", "kubernetes/daemonset.yaml"):
            text = read("tools/packaging", name)
            self.assertNotIn("--listen", text, name)
            for path in re.findall(r"--config[\", ]+([^\s\",]+)", text):
                self.assertEqual(path, "/etc/pipetrace/agent.conf", name)


@unittest.skipUnless(yaml, "there is no python3-yaml")
class Kubernetes(unittest.TestCase):
    def load(self, name):
        return yaml.safe_load(read("tools/packaging/kubernetes", name))

    def test_base_names_files_that_are_there(self):
        base = self.load("kustomization.yaml")
        kinds = {self.load(name)["kind"] for name in base["resources"]}
        self.assertEqual(kinds, {"Namespace", "ServiceAccount", "DaemonSet"})
        for made in base["configMapGenerator"]:
            for name in made["files"]:
                self.assertTrue(os.path.exists(os.path.join(PACKAGING, "kubernetes", name)))

    def test_rights(self):
        pod = self.load("daemonset.yaml")["spec"]["template"]["spec"]
        box = pod["containers"][0]["securityContext"]
        self.assertTrue(pod["hostPID"])
        self.assertNotIn("hostNetwork", pod)
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertFalse(self.load("serviceaccount.yaml")["automountServiceAccountToken"])
        self.assertTrue(box["readOnlyRootFilesystem"])
        self.assertFalse(box["allowPrivilegeEscalation"] or box["privileged"])
        self.assertEqual(box["capabilities"]["drop"], ["ALL"])
        self.assertEqual(set(box["capabilities"]["add"]), capabilities())

    def test_paths_and_ports_agree(self):
        pod = self.load("daemonset.yaml")["spec"]["template"]
        box = pod["spec"]["containers"][0]
        conf = read("tools/packaging/kubernetes/agent.conf")
        mounts = {m["name"]: m for m in box["volumeMounts"]}
        self.assertEqual(set(mounts), {v["name"] for v in pod["spec"]["volumes"]})
        self.assertIn("state = %s\n" % mounts["state"]["mountPath"], conf)
        self.assertNotIn("readOnly", mounts["state"])
        self.assertIn("logs = %s\n" % mounts["log"]["mountPath"], conf)
        self.assertTrue(mounts["log"]["readOnly"] and mounts["config"]["readOnly"])
        self.assertIn(mounts["config"]["mountPath"] + "/agent.conf", box["args"])
        port = box["ports"][0]["containerPort"]
        self.assertIn(":%d\n" % port, conf)
        self.assertEqual(pod["metadata"]["annotations"]["prometheus.io/port"], str(port))

    def test_selector(self):
        d = self.load("daemonset.yaml")
        self.assertEqual(d["spec"]["selector"]["matchLabels"],
                         d["spec"]["template"]["metadata"]["labels"])


if __name__ == "__main__":
    totals.main()
