"""compose.yaml: read by podman-compose, whole, and made of things that exist."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROFILES = ["--profile", "observability", "--profile", "drill"]
SERVICES = ["producer", "worker", "retry-scheduler", "dlq-handler"]


@cache
def configuration() -> dict[str, Any]:
    program = Path(sys.executable).with_name("podman-compose")
    done = subprocess.run(
        [program, "-f", ROOT / "compose.yaml", *PROFILES, "config"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"COMPOSE_PROFILES": "observability,drill"},
    )
    read: dict[str, Any] = yaml.safe_load(done.stdout)
    return read


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_setup_and_says_when_it_is_ready(name: str) -> None:
    service = configuration()["services"][name]
    assert service["depends_on"]["setup"]["condition"] == "service_completed_successfully"
    assert "/readyz" in service["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", [*SERVICES, "setup"])
def test_an_image_is_built_from_a_service_that_exists(name: str) -> None:
    build = configuration()["services"][name]["build"]
    service = dict(part.split("=") for part in build["args"])["SERVICE"]
    assert (ROOT / build["dockerfile"]).is_file()
    assert (ROOT / "services" / service / "pyproject.toml").is_file()


def test_setup_waits_for_both_servers() -> None:
    waits = configuration()["services"]["setup"]["depends_on"]
    assert {name: wait["condition"] for name, wait in waits.items()} == {
        "postgres": "service_healthy",
        "broker": "service_healthy",
    }


def test_every_mounted_file_is_there() -> None:
    mounts = [m for s in configuration()["services"].values() for m in s.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert files
    assert all((ROOT / file).exists() for file in files)


def test_every_port_listens_on_loopback_only() -> None:
    ports = [port for s in configuration()["services"].values() for port in s.get("ports", [])]
    assert ports
    assert all(str(port).startswith("127.0.0.1:") for port in ports)


def test_what_is_scraped_and_alerted_is_a_service_with_that_port() -> None:
    services = configuration()["services"]
    told = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())

    jobs = {job["job_name"]: job for job in told["scrape_configs"]}
    for name in SERVICES:
        (where,) = jobs[name]["dns_sd_configs"]
        assert where["names"] == [name]
        assert f"127.0.0.1:{where['port']}:{where['port']}" in services[name]["ports"]
        assert jobs[name]["relabel_configs"] == [{"target_label": "app", "replacement": "filaviva"}]
    (alerting,) = told["alerting"]["alertmanagers"][0]["static_configs"]
    assert alerting["targets"][0].split(":")[0] in services


def test_grafana_finds_its_data_sources_and_dashboards() -> None:
    folder = ROOT / "deploy/grafana/provisioning"
    sources = yaml.safe_load((folder / "datasources/filaviva.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/filaviva.yml").read_text())["providers"]

    mounts = configuration()["services"]["grafana"]["volumes"]
    assert any(mount.split(":")[1] == provider["options"]["path"] for mount in mounts)
    types = [source["type"] for source in sources]
    assert types == ["prometheus", "grafana-postgresql-datasource", "jaeger"]
    services = configuration()["services"]
    assert all(source["url"].split("//")[-1].split(":")[0] in services for source in sources)
    (led_to,) = sources[0]["jsonData"]["exemplarTraceIdDestinations"]
    assert led_to == {"name": "trace_id", "datasourceUid": sources[2]["uid"]}
    assert "--enable-feature=exemplar-storage" in services["prometheus"]["command"]
    assert not provider["allowUiUpdates"]


def test_traces_go_to_the_collector_of_the_profile() -> None:
    services = configuration()["services"]
    where = {services[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] for name in SERVICES}

    assert where == {"http://traces:4318"}
    assert "127.0.0.1:4318:4318" in services["traces"]["ports"]


def test_alertmanager_starts_with_and_without_a_webhook(tmp_path: Path) -> None:
    service = configuration()["services"]["alertmanager"]
    told = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text())
    file = told["receivers"][1]["slack_configs"][0]["api_url_file"]
    (line,) = service["command"]
    begun = line.replace("/bin/alertmanager", "true").replace(file, str(tmp_path / "webhook"))

    for url in ("", "https://hooks.slack.test/x"):
        environment = {"FILAVIVA_SLACK__WEBHOOK_URL": url} if url else {}
        subprocess.run([*service["entrypoint"], begun], check=True, env=environment)
        assert (tmp_path / "webhook").read_text() == url
        assert (tmp_path / "webhook").stat().st_mode & 0o077 == 0


def test_a_drill_listens_where_workers_look_for_its_provider() -> None:
    services = configuration()["services"]
    place = urlsplit(services["worker"]["environment"]["FILAVIVA_DRILL__PROVIDER_URL"])
    told = services["drill"]["environment"]

    assert place.hostname == "drill"
    assert services["drill"]["command"][-1] == f"0.0.0.0:{place.port}"
    for name in ("FILAVIVA_DRILL__API_URL", "FILAVIVA_DRILL__PROMETHEUS_URL"):
        where = urlsplit(told[name])
        assert f"127.0.0.1:{where.port}:{where.port}" in services[str(where.hostname)]["ports"]
