# SPDX-License-Identifier: BSD-2-Clause
"""The list of what the program is made of (tools/sbom): each field that SPDX 2.3 asks for,
each library that the file asks for, and the same bytes twice. That a field which lacks or
is wrong is noticed is tried, too."""
import copy
import json
import os
import re
import subprocess
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests"))
import totals  # noqa: E402
PIPETRACE = os.path.join(TOP, "build/pipetrace")
ID = r"SPDXRef-[A-Za-z0-9.-]+"
SUM = {"SHA1": r"[0-9a-f]{40}", "SHA256": r"[0-9a-f]{64}"}
TEXT = r"(?s).+"
# SPDX 2.3, clauses 6, 7, 8 and 11: what must be there, and how it looks
DOCUMENT = {"spdxVersion": r"SPDX-2\.3", "dataLicense": r"CC0-1\.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": TEXT, "documentNamespace": r"https?://[^#\s]+"}
PACKAGE = {"SPDXID": ID, "name": TEXT, "downloadLocation": r"NOASSERTION|NONE|\w+:\S+"}
FILE = {"SPDXID": ID, "fileName": r"\./.+"}
RELATION = {"spdxElementId": ID, "relatedSpdxElement": ID}
KINDS = {"DESCRIBES", "DYNAMIC_LINK", "STATIC_LINK", "DEPENDS_ON", "CONTAINS", "GENERATED_FROM",
         "OPTIONAL_DEPENDENCY_OF", "BUILD_TOOL_OF"}
LICENCE = r"NOASSERTION|\(?[A-Za-z0-9.-]+\)?( (AND|OR|WITH) \(?[A-Za-z0-9.-]+\)?)*"


def wrong_fields(what, fields, where):
    return ["%s: %s" % (where, name) for name, looks in fields.items()
            if not isinstance(what.get(name), str) or not re.fullmatch(looks, what[name])]


def wrong(doc):
    """What the standard would not take."""
    bad = wrong_fields(doc, DOCUMENT, "document")
    info = doc.get("creationInfo", {})
    bad += wrong_fields(info, {"created": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"}, "creationInfo")
    if not info.get("creators") or not all(
            re.match(r"(Tool|Person|Organization): \S", c) for c in info["creators"]):
        bad.append("creators")
    for p in doc.get("packages", []):
        where = str(p.get("name"))
        bad += wrong_fields(p, PACKAGE, where)
        bad += wrong_fields(p, {"licenseDeclared": LICENCE, "licenseConcluded": LICENCE}, where)
        if p.get("filesAnalyzed") is not False:
            bad.append(where + ": filesAnalyzed, and no verification code")
    for f in doc.get("files", []):
        bad += wrong_fields(f, FILE, str(f.get("fileName")))
        sums = {c["algorithm"]: c["checksumValue"] for c in f.get("checksums", [])}
        if "SHA1" not in sums or not all(re.fullmatch(SUM[k], v) for k, v in sums.items()):
            bad.append("%s: checksums" % f.get("fileName"))
    ids = [x.get("SPDXID") for x in [doc] + doc.get("packages", []) + doc.get("files", [])]
    if len(set(ids)) != len(ids):
        bad.append("two have one SPDXID")
    named = set()
    for r in doc.get("relationships", []):
        bad += wrong_fields(r, RELATION, "relationship")
        ends = {r.get("spdxElementId"), r.get("relatedSpdxElement")}
        if r.get("relationshipType") not in KINDS or not ends <= set(ids):
            bad.append("relationship: %s" % r)
        named |= ends
    if not any(r.get("relationshipType") == "DESCRIBES" for r in doc.get("relationships", [])):
        bad.append("nothing is described")
    return bad + ["%s is in no relation" % i for i in set(ids) - named]


def make():
    return subprocess.run([os.path.join(TOP, "tools/sbom"), PIPETRACE, "0.1.0"], check=True,
                          stdout=subprocess.PIPE, timeout=120).stdout


@unittest.skipUnless(os.path.exists(PIPETRACE + ".map"), "build/pipetrace is not built")
class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = make()
        cls.doc = json.loads(cls.text)
        cls.packages = {p["name"]: p for p in cls.doc["packages"]}

    def related(self, kind):
        """Names of the packages that stand so to the program."""
        names = {p["SPDXID"]: p["name"] for p in self.doc["packages"]}
        return {names.get(e) for r in self.doc["relationships"] if r["relationshipType"] == kind
                for e in (r["spdxElementId"], r["relatedSpdxElement"])} - {"pipetrace", None}

    def test_required_fields(self):
        self.assertEqual(wrong(self.doc), [])

    def test_same_bytes_twice(self):
        self.assertEqual(make(), self.text)

    def test_each_field_that_lacks_is_noticed(self):
        for name in list(DOCUMENT) + ["creationInfo"]:
            doc = copy.deepcopy(self.doc)
            del doc[name]
            self.assertNotEqual(wrong(doc), [], name)
        for part, fields in (("packages", PACKAGE), ("files", FILE), ("relationships", RELATION)):
            for name in fields:
                doc = copy.deepcopy(self.doc)
                doc[part][-1][name] = ""
                self.assertNotEqual(wrong(doc), [], (part, name))
        doc = copy.deepcopy(self.doc)
        doc["relationships"].pop()
        self.assertNotEqual(wrong(doc), [])

    @unittest.skipUnless(os.path.exists("/usr/bin/dpkg-query"), "no Debian packages here")
    def test_what_is_linked(self):
        dynamic = subprocess.run(["readelf", "-dW", PIPETRACE], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout
        sonames = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        owner = {"libbpf.so.1": "libbpf1", "libsqlite3.so.0": "libsqlite3-0",
                 "libmicrohttpd.so.12": "libmicrohttpd12", "libelf.so.1": "libelf1"}
        for soname in set(sonames) & set(owner):
            self.assertIn(owner[soname], self.related("DYNAMIC_LINK"))
        self.assertLessEqual(len(self.related("DYNAMIC_LINK")), len(sonames))
        for name in ("libiberty-dev", "uthash-dev"):
            self.assertIn(name, self.related("STATIC_LINK"))
        for name in self.related("DYNAMIC_LINK") | self.related("STATIC_LINK"):
            self.assertRegex(self.packages[name]["versionInfo"], r"^\d", name)
            self.assertNotEqual(self.packages[name]["licenseDeclared"], "NOASSERTION", name)

    def test_what_is_embedded(self):
        page = os.path.join(TOP, "build/html/page.html")
        with open(page, encoding="utf-8") as f:
            has = "/*! uPlot" in f.read()
        self.assertEqual("uplot" in self.related("CONTAINS"), has)
        if has:
            self.assertEqual(self.packages["uplot"]["licenseDeclared"], "MIT")
        files = {f["fileName"] for f in self.doc["files"]}
        self.assertLessEqual({"./bpf/pipetrace.o", "./libpipetrace_agent.so", "./html/page.html"},
                             files)


if __name__ == "__main__":
    totals.main()
