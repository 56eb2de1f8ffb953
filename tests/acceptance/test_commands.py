"""The commands for people, against the system that `rung up` runs in another terminal."""

from __future__ import annotations

import json
import subprocess
import urllib.request

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.world import World

PROFILE = '{"addresses": {"push": "token-1", "chat": "@ada", "email": "ada@example.test"}}'


def test_notify_explain_resolve_status(world: World, who: str) -> None:
    """A newcomer's five minutes: a profile, a notification, what happened to it, the act, where it stands."""
    assert world.rung("recipient", "put", who, PROFILE).stdout == "recorded\n"
    identity = world.rung("notify", who, "slow", "invoice-1", "--data", '{"number": 1}').stdout.strip()
    world.wait_for(who, "step.sent")
    story = eventually(lambda: "sent" in (s := world.rung("explain", who, "invoice-1").stdout) and s)
    assert "step 0 push" in story
    assert "it was due at" in story
    world.rung("resolve", who, "invoice-1", "paid")
    world.wait_for(who, "notification.resolved")
    standing = eventually(
        lambda: "ended_at" in (s := json.loads(world.rung("status", identity, "--json").stdout)) and s
    )
    assert (standing["notification_id"], standing["status"]) == (identity, "resolved")
    plain = world.rung("status", identity).stdout
    assert "nothing" in plain.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("notify", "ada", "no-such-kind", "k"), "kind"),
        (("notify", "ada", "slow", "k", "--data", "[1]"), "JSON object"),
        (("notify", "ada", "slow", "k", "--data", "{"), "no JSON"),
        (("notify", "ada", "slow", "k", "--expires-at", "tomorrow"), "RFC 3339"),
        (("notify", "", "slow", "k"), "recipient"),
        (("status", "not-an-id"), "notification id"),
        (("explain", "00000000-0000-0000-0000-000000000000"), "knows no notification"),
        (("explain", "nobody", "no-key"), "recipient 'nobody' with dedup key 'no-key'"),
        (("recipient", "put", "ada", '{"time_zone": "Mars/Olympus"}'), "time_zone"),
        (("recipient", "put", "ada", '{"adresses": {}}'), "profile.adresses"),
        (("recipient", "put", "ada", "@no-such-file"), "cannot be read"),
    ],
)
def test_a_mistake_gets_one_clear_line(world: World, arguments: tuple[str, ...], says: str) -> None:
    """Exit code 2 and a message that names what is wrong; never a traceback."""
    result = world.rung(*arguments, check=False)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_request_that_has_expired_already_is_taken_with_a_warning(world: World, who: str) -> None:
    """Its time may have passed while the request waited, so it is no mistake; but a person hardly means it."""
    result = world.rung("notify", who, "slow", "old", "--data", '{"number": 1}', "--expires-at", "2020-01-01T00:00:00Z")
    assert result.stdout.strip()
    assert "in the past" in result.stderr


def test_every_service_serves_its_metrics(world: World) -> None:
    """What `rung up --json` says is where they are."""
    assert set(world.where["metrics"]) == {"outbox", "delays", "processor", "deliver", "journal", "api"}
    for service, url in world.where["metrics"].items():
        with urllib.request.urlopen(url, timeout=5) as response:
            text = response.read().decode()
        assert "rung_" in text, service


def test_the_api_takes_what_sql_takes(world: World, who: str) -> None:
    """A service without a database of ours: over HTTP, with the same id as SQL derives."""
    world.put(who)
    body = json.dumps({"recipient": who, "kind": "slow", "dedup_key": "h1", "data": {"number": 1}}).encode()
    request = urllib.request.Request(
        f"{world.where['api']}/v1/notifications", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = json.loads(response.read())
        assert response.status == 202
    world.wait_for(who, "step.sent")
    assert answer["notification_id"] == world.notify(who, "slow", "h1")
    world.wait_for(who, "notification.duplicate")


def test_a_killed_service_is_started_again(world: World, who: str) -> None:
    """kill -9 of the processor: `rung up` starts it again, and what was asked for meanwhile is delivered."""
    world.put(who)
    victim = world.service("processor")
    victim.kill()
    world.notify(who, kind="slow")
    world.wait_for(who, "step.sent", timeout=60)
    assert world.service("processor").pid != victim.pid


def test_no_log_holds_a_body_or_an_address(world: World, who: str) -> None:
    """A message goes through every service, and none of them logs what it says or whom it goes to."""
    marker = f"secret-{who}"
    world.put(who, addresses={"push": marker})
    world.notify(who, kind="slow", number=987_654_321)
    world.wait_for(who, "step.sent")
    logs = "".join(path.read_text() for path in world.logs.glob("*.log"))
    assert "service_started" in logs
    assert marker not in logs
    assert "987654321" not in logs


def test_up_says_where_everything_is(world: World) -> None:
    """The object of `--json` has what other programs need."""
    assert {"kafka", "database_url", "api", "metrics", "config_dir"} <= set(world.where)
    children = psutil.Process(world.system.pid).children(recursive=True)
    assert len(children) >= 8
    assert isinstance(world.rung("--help"), subprocess.CompletedProcess)
