"""The `rung` command: one sub-command for each service, and those for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from deploy import operate, people, redrive_command
from deploy.errors import CommandError
from deploy.settings import load_with


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"rung {version('rung')}")
        raise typer.Exit


app = typer.Typer(
    name="rung",
    help="Notifications that climb a ladder of channels until the person acts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(people.recipient, name="recipient")
app.add_typer(operate.topics, name="topics")
app.add_typer(operate.ladders, name="ladders")
for command in people.COMMANDS:
    app.command()(command)
for service in operate.SERVICE_COMMANDS:
    app.command(rich_help_panel="Services")(service)
app.command()(operate.migrate)
app.command("accept-loss")(operate.accept_loss)
app.command()(operate.audit)
app.command()(redrive_command.redrive)


@app.callback()
def rung(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Notifications that climb a ladder of channels until the person acts."""


@app.command()
def up(
    config: operate.ConfigDir = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep everything in this folder; a temporary one otherwise.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print where everything is as one JSON line.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Drop also kinds that open notifications use.")] = False,
) -> None:
    """Run the whole system in the foreground, on the embedded stack unless the settings name servers."""
    from deploy.up import up as run_up

    raise typer.Exit(run_up(load_with(config), state, as_json=json, force=force))


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the state and the logs in this folder.")
    ] = None,
) -> None:
    """Play a real scenario through the whole system, check it from outside, and stop everything."""
    from deploy.demo.run import run_demo

    raise typer.Exit(run_demo(keep))


@app.command()
def simulate(
    ladders: Annotated[Path, typer.Argument(metavar="LADDERS", help="A ladder file.")],
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="Notifications, answers and resolutions at their times.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    jitter: Annotated[bool, typer.Option(help="Jitter as in production; without, the schedule is exact.")] = False,
) -> None:
    """Play ladders with a clock of their own: no Kafka, no database, the same decisions."""
    from processor.lab.show import run

    raise typer.Exit(run(ladders, scenario, json_output=json, jitter=jitter))


def main() -> None:
    """Run the command; what is wrong with the user's input ends it with one clear message and exit code 2."""
    try:
        app()
    except CommandError as error:
        print(f"rung: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
