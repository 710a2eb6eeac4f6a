# SPDX-License-Identifier: BSD-2-Clause
"""The agent's example configuration, systemd unit and Kubernetes manifests: that they
are valid, agree with each other and with the program."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
    """What the program keeps."""
    source = read("user/agent/privileges.c")
    listed = re.search(r"wanted\[\] = \{(.*?)\}", source, re.S).group(1)
    return set(re.findall(r"CAP_(\w+)", listed))


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
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("ok 1 - %s # SKIP %s" % (test, why))
    print("%d passed, %d failed, %d skipped" % (result.testsRun - bad - len(result.skipped), bad,
                                                len(result.skipped)))
    sys.exit(1 if bad else 0)
