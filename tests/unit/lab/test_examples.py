"""The scenarios that ship, and one with everything in it, told to the letter."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from processor.lab import simulate
from processor.lab.show import plain, run

EXAMPLES = Path(__file__).parents[3] / "processor" / "lab" / "examples"
CASES = Path(__file__).parent / "cases"
ALL = {
    "retries": EXAMPLES,
    "payment": EXAMPLES,
    "everything": CASES,
}


def files(name: str) -> tuple[Path, Path]:
    """The ladders and the scenario of an example."""
    return ALL[name] / f"{name}.ladders.toml", ALL[name] / f"{name}.scenario.toml"


def texts(name: str) -> tuple[str, str]:
    """What is in them."""
    ladders, scenario = files(name)
    return ladders.read_text(encoding="utf-8"), scenario.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_told_to_the_letter(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is the golden file, which shows each change of behaviour in a review."""
    assert run(*files(name)) == 0
    printed = capsys.readouterr()
    assert printed.out == (CASES / f"{name}.golden.txt").read_text(encoding="utf-8")
    assert printed.err == ""


@pytest.mark.parametrize("name", ALL)
def test_a_simulation_is_repeatable(name: str) -> None:
    """The same texts give an equal simulation."""
    assert simulate(*texts(name)) == simulate(*texts(name))


def test_every_shipped_file_is_an_example() -> None:
    """No file ships that no test plays."""
    assert {path.name for path in EXAMPLES.iterdir()} == {
        path.name for name, folder in ALL.items() if folder == EXAMPLES for path in files(name)
    }


def test_the_retries_have_their_exact_times_and_states() -> None:
    """The delays are 1, 2 and 4 seconds, four calls are the most, an error is cleared by success, and five requests
    for four notifications and one of a kind that nobody knows leave four."""
    simulation = simulate(*texts("retries"))
    assert [f"{line.time} {line.label} {line.text}" for line in simulation.log] == [
        "12:00:00 ntf_001 attempt 1: provider returned 503, retry at 12:00:01",
        "12:00:00 ntf_002 attempt 1: sent",
        "12:00:00 ntf_003 attempt 1: dead (permanent failure: mailbox does not exist)",
        "12:00:00 ntf_004 attempt 1: provider returned 503, retry at 12:00:01",
        "12:00:01 ntf_001 attempt 2: provider returned 503, retry at 12:00:03",
        "12:00:01 ntf_004 attempt 2: provider returned 503, retry at 12:00:03",
        "12:00:03 ntf_001 attempt 3: sent",
        "12:00:03 ntf_004 attempt 3: provider returned 503, retry at 12:00:07",
        "12:00:07 ntf_004 attempt 4: dead after 4 attempts (provider returned 503)",
    ]
    assert [(s.label, s.state, s.attempts, s.last_error) for s in simulation.states] == [
        ("ntf_001", "sent", 3, ""),
        ("ntf_002", "sent", 1, ""),
        ("ntf_003", "dead", 1, "permanent failure: mailbox does not exist"),
        ("ntf_004", "dead", 4, "provider returned 503"),
    ]
    assert simulation.delivered == (("email", "bob@example.test"), ("email", "ada@example.test"))
    answers = [line.text.split(" -> ")[1] for line in simulation.requests]
    assert answers[:2] == ["id=ntf_001 created=true", "id=ntf_001 created=false"]
    assert answers[-1].startswith("refused (unknown kind): no ladder for kind 'pager'")


def test_the_payment_stops_when_it_is_paid() -> None:
    """Resolved at eleven minutes: push and chat have left, the mail never does; a rejected push promotes the chat, and
    the next ladder of that person does not try the push."""
    simulation = simulate(*texts("payment"))
    mia, noah, olga, noah_again = simulation.states
    assert [(step.channel, step.state) for step in mia.steps] == (
        [("push", "sent"), ("chat", "sent"), ("email", "suppressed")]
    )
    assert [(step.channel, step.state) for step in noah.steps] == (
        [("push", "rejected"), ("chat", "sent"), ("email", "suppressed")]
    )
    assert olga.attempts == 0
    assert [step.state for step in noah_again.steps] == ["suppressed", "sent", "suppressed"]
    times = [(line.time, line.text) for line in simulation.log if line.label == mia.label]
    assert ("12:10:00", "chat attempt 1: sent") in times
    assert ("12:11:00", "resolved (paid) at depth 2") in times
    assert all(channel != "email" for channel, _ in simulation.delivered)


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads the log, the states, every delivery event, and what the store holds."""
    assert run(*files("everything"), json_output=True) == 0
    shown = json.loads(capsys.readouterr().out)
    simulation = simulate(*texts("everything"))
    assert [line["text"] for line in shown["log"]] == [line.text for line in simulation.log]
    assert [state["state"] for state in shown["states"]] == [state.state for state in simulation.states]
    assert len(shown["events"]) == len(simulation.events) > 100
    assert shown["events"][0]["type"].startswith("rung.")
    assert shown["recipients"].keys() == simulation.recipients.keys()
    assert len(shown["delivered"]) == len(simulation.delivered)


@pytest.mark.parametrize("name", ALL)
def test_a_terminal_gets_the_same_in_colour(name: str) -> None:
    """Colours are added for people, and nothing else; a narrow window breaks no line."""
    out = StringIO()
    assert run(*files(name), console=Console(file=out, force_terminal=True, width=40)) == 0
    assert "\x1b[" in out.getvalue()
    assert Text.from_ansi(out.getvalue()).plain.rstrip() == plain(simulate(*texts(name))).rstrip()


def test_jitter_makes_waits_shorter_and_stays_repeatable() -> None:
    """With the ladders' own jitter the retries come before their exact backoff, and the same each time."""
    exact = simulate(*texts("retries"))
    jittered = simulate(*texts("retries"), jitter=True)
    assert jittered == simulate(*texts("retries"), jitter=True)
    last, exact_last = jittered.log[-1], exact.log[-1]
    assert last.text == exact_last.text
    assert last.at < exact_last.at


def test_the_lab_needs_no_kafka_and_no_database() -> None:
    """A simulation loads neither client: it runs where nothing of the system is installed or up."""
    clients = {"confluent_kafka", "quixstreams", "psycopg"}
    code = f"import sys, processor.lab.show; print(sorted({clients} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=EXAMPLES.parents[2]
    )
    assert done.stdout.strip() == "[]"
