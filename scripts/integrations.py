"""Runs the tests of `ullage.integrations`, each host in an environment of its own.

    python scripts/integrations.py                 all hosts
    python scripts/integrations.py openai_sdk      one of them

`tests/integrations/hosts.toml` has the hosts with the versions of their packages. The environments are made
in `.venv-integrations`, once for each set of versions. The figures are kept in
`tests/integrations/results.json`, and `scripts/docs.py` makes the table of docs/library/integrations.md.
"""
# ruff: noqa: S603, S314 - the commands and the report are our own

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
HOSTS = ROOT / "tests" / "integrations" / "hosts.toml"
RESULTS = ROOT / "tests" / "integrations" / "results.json"
ENVIRONMENTS = ROOT / ".venv-integrations"
TEST_PACKAGES = ("hypothesis>=6.150", "pytest>=9.0", "pytest-socket>=0.7", "pytest-timeout>=2.4")


def prepare(host: str, packages: list[str]) -> Path | None:
    """Returns the interpreter of a host's environment; makes the environment if it has other packages.

    Returns None if a package cannot be installed. The other hosts are tried all the same.
    """
    folder = ENVIRONMENTS / host
    python, mark = folder / "bin" / "python", folder / "packages.json"
    wanted = json.dumps([*packages, *TEST_PACKAGES])
    if not mark.exists() or mark.read_text("utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run(
            [*install, "--editable", str(ROOT), *packages, *TEST_PACKAGES], check=False
        ).returncode:
            return None
        mark.write_text(wanted, "utf-8")
    return python


def run(host: str, python: Path) -> tuple[int, list[dict[str, Any]]]:
    """Runs the tests of a host. Returns pytest's exit code, and the figures of each recorded loop."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "report.xml"
        quiet = ("-W", "default", "--disable-warnings", "-p", "no:cacheprovider")  # a host may warn
        command = [str(python), "-m", "pytest", "-m", "integrations", *quiet, f"--junitxml={written}"]
        code = subprocess.run(
            [*command, f"tests/integrations/test_{host}.py"], cwd=ROOT, check=False
        ).returncode
        recorded = ET.parse(written).getroot().iter("property") if written.exists() else ()
        return code, [json.loads(each.attrib["value"]) for each in recorded if each.attrib["name"] == "loop"]


def save(rows: dict[str, Any], order: list[str]) -> None:
    """Puts the rows of hosts into the results, in the order of the list of hosts."""
    known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    known |= rows
    ordered = {host: known[host] for host in order if host in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")


def main(chosen: list[str]) -> int:
    """Runs the chosen hosts, or all. Returns 1 if a test failed."""
    hosts = tomllib.loads(HOSTS.read_text("utf-8"))
    if unknown := set(chosen) - hosts.keys():
        print(f"Unknown host {', '.join(sorted(unknown))}. The hosts are {', '.join(hosts)}.")
        return 2
    failed = []
    for host in chosen or hosts:
        print(f"\n{host}: {', '.join(hosts[host]['packages'])}", flush=True)
        python = prepare(host, hosts[host]["packages"])
        if python is None:
            failed.append(host)  # it was not tried, so the figures of its last run stay
            continue
        code, loops = run(host, python)
        if code:
            failed.append(host)
        save({host: {"packages": hosts[host]["packages"], "passed": not code, "loops": loops}}, list(hosts))
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
