"""The files in `deploy/` name only things that exist, and the programs that they are for accept them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway import chat, serving
from tests.player import playing, sent_json
from tests.test_cli_serve import opened, started
from tests.world import BIN, PATIENCE, environment
from ullage.cli.serve import add_options
from ullage.config import load
from ullage.gateway.app import ROUTES
from ullage.gateway.metrics import METRICS

DEPLOY = Path(__file__).parents[1] / "deploy"
GAUGES = {"ullage_conversations"}


def serve_options(words: list[str]) -> Any:
    """The options of `ullage serve` in a command line; a wrong one ends the test."""
    from argparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    add_options(parser)
    return parser.parse_args(words[words.index("serve") + 1 :])


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def test_the_dashboard_uses_all_metrics_and_no_others() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))["panels"]
    used = {
        re.sub(r"_(bucket|sum|count)$", "", name) if name not in METRICS else name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"\bullage_\w+", target["expr"])
    }
    assert used == {*METRICS, *GAUGES}


@pytest.mark.enable_socket
def test_every_metric_of_the_dashboard_is_in_the_answer_of_a_gateway() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))["panels"]
    used = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"\bullage_\w+", target["expr"])
    }
    with playing(sent_json({"choices": []})) as player, serving(player.url) as gateway:
        gateway.ask("/v1/chat/completions", chat("Where is the harbour?"))
        told = gateway.ask("/metrics").body.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", told, re.MULTILINE))
    ends = ("_bucket", "_sum", "_count")
    known = {name + end for name, kind in types.items() if kind == "histogram" for end in ends}
    assert used <= known | {name for name, kind in types.items() if kind != "histogram"}


def test_the_labels_of_the_dashboard_exist() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))["panels"]
    for target in (target for panel in panels for target in panel["targets"]):
        (name, *_) = re.findall(r"\bullage_\w+", target["expr"])
        for label in re.findall(r"sum by \((\w+)\)", target["expr"]):
            known = METRICS.get(name) or METRICS[re.sub(r"_(bucket|sum|count)$", "", name)]
            assert label in (*known.labels, "le"), target["expr"]


def test_the_service_starts_the_gateway_with_options_that_exist() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "ullage.service").read_text("utf-8"), re.MULTILINE)
    options = serve_options(shlex.split(line))
    assert (options.host, options.store) == ("127.0.0.1", "/var/lib/ullage/ullage.db")


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed: apt-get install systemd"
)
def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    text = (DEPLOY / "ullage.service").read_text("utf-8")
    file = tmp_path / "ullage.service"
    file.write_text(text.replace("/opt/ullage/bin/ullage", str(BIN / "ullage")), "utf-8")
    command = ["systemd-analyze", "verify", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.enable_socket
def test_the_command_of_the_service_starts_and_stops_with_a_home_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "ullage.service").read_text("utf-8"), re.MULTILINE)
    config = tmp_path / "config.toml"
    config.write_text('model = "local"\n[models.local]\nendpoint = "http://127.0.0.1:9/v1"\nmodel = "m"\n')
    line = line.replace("/etc/ullage/config.toml", str(config))
    line = line.replace("/var/lib/ullage", str(tmp_path)).replace("--port 8787", "")
    words = shlex.split(line)
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    with started(home, *words[words.index("serve") + 1 :]) as (process, url):
        for path in ("/healthz", "/readyz", "/metrics"):
            with opened(url + path) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "ullage.db").exists()
    assert not list(home.iterdir())


def test_the_image_starts_the_gateway_with_options_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    entry, command = (
        json.loads(re.findall(rf"^{word} (.*)$", text, re.MULTILINE)[0]) for word in ("ENTRYPOINT", "CMD")
    )
    assert serve_options([*entry, *command]).port == 8787


def test_the_manifest_has_settings_and_probes_that_exist(tmp_path: Path) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents()}
    file = tmp_path / "config.toml"
    file.write_text(found["ConfigMap", "ullage"]["data"]["config.toml"], "utf-8")
    settings = load(file, environ={"ANTHROPIC_API_KEY": "x"}, cwd=tmp_path)
    assert settings.store.url == "postgresql://ullage@postgres/ullage"
    (container,) = found["Deployment", "gateway"]["spec"]["template"]["spec"]["containers"]
    assert serve_options(["serve", *container["args"]]).config == "/etc/ullage/config.toml"
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in ROUTES
    assert found["Service", "gateway"]["spec"]["ports"][0]["targetPort"] == 8787


def test_kubernetes_accepts_the_manifest() -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate"
    )
    for each in documents():
        validator.validate(each, validator.latest_version(), strict=True)


@pytest.mark.parametrize("file", sorted(DEPLOY.iterdir()), ids=lambda file: file.name)
def test_no_file_has_a_real_secret(file: Path) -> None:
    for value in re.findall(r"(?:PASSWORD|API_KEY): (\S+)", file.read_text("utf-8")):
        assert value.startswith("change-this-")
