"""Templates: which file counts, what is escaped, and what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from processor.delivery.templates import LIMIT, Message, TemplateError, Templates, check_templates
from schemas.state import Ladder, LadderStep
from tests.support.delivery import delivery

MAIL = "{% block subject %}To {{ name }}{% endblock %}{% block text %}{{ name }}{% endblock %}"


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def _render(folder: Path, **fields: object) -> Message:
    return Templates(folder).render(delivery(**{"data": {"name": "Ada"}, **fields}))


@pytest.mark.parametrize(
    ("locale", "text"),
    [
        ("de-AT", "de-AT"),
        ("de-CH", "de"),
        ("de-CH-1996", "de"),
        ("de", "de"),
        ("fr", "none"),
        (None, "none"),
        ("../../etc", "none"),
        ("", "none"),
    ],
)
def test_the_nearest_language_counts(tmp_path: Path, locale: str | None, text: str) -> None:
    """From the whole tag to the file without a language."""
    for tag in ("", ".de", ".de-AT"):
        _write(tmp_path, f"news/push{tag}.j2", tag[1:] or "none")
    assert _render(tmp_path, locale=locale).text == text


def test_values_are_escaped_in_html_and_nowhere_else(tmp_path: Path) -> None:
    """One file, both worlds; imported macros too."""
    _write(tmp_path, "frame.j2", "{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}")
    html = '{% import "frame.j2" as frame %}{% block html %}{{ frame.bold(name) }}{{ name }}{% endblock %}'
    _write(tmp_path, "news/email.j2", MAIL + html)
    message = _render(tmp_path, channel="email", data={"name": "<i>&"})
    assert message == Message("To <i>&", "<i>&", "<b>&lt;i&gt;&amp;</b>&lt;i&gt;&amp;")


def test_our_names_win_over_the_datas(tmp_path: Path) -> None:
    """Data cannot pretend to be another recipient; its own fields stay reachable under `data`."""
    _write(tmp_path, "news/push.j2", "{{ recipient }} {{ kind }} {{ data.recipient }}")
    assert _render(tmp_path, data={"recipient": "eve"}).text == "ada news eve"


@pytest.mark.parametrize(
    "text",
    [
        "{{ missing }}",
        "{{ name.missing.deeper }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ data.clear() }}",
        "{% for x in range(10000000) %}{% endfor %}",
        "{{ 'x' * 600000 }}",
        "{% include 'not/there.j2' %}",
        "{{ name",
    ],
)
def test_a_template_that_fails_is_an_error_without_values(tmp_path: Path, text: str) -> None:
    """A missing name, the sandbox's fence, a text that is too long, and faults of the file itself."""
    _write(tmp_path, "news/push.j2", text)
    with pytest.raises(TemplateError) as caught:
        _render(tmp_path, data={"name": "secret-name"})
    assert "secret-name" not in str(caught.value)
    assert LIMIT < 600_000


@pytest.mark.parametrize("template", ["../news", "gone", "News", ""])
def test_a_template_that_does_not_exist_is_an_error(tmp_path: Path, template: str) -> None:
    """Also where its name tries to be a path."""
    _write(tmp_path, "news/push.j2", "x")
    with pytest.raises(TemplateError):
        _render(tmp_path / "news", template=template)


def test_the_check_names_every_fault(tmp_path: Path) -> None:
    """Missing files, wrong blocks, bad syntax, in every language."""
    _write(tmp_path, "news/email.j2", "{% block text %}{% endblock %}{% block txt %}{% endblock %}")
    _write(tmp_path, "news/email.de.j2", "{% block subject %}")
    _write(tmp_path, "news/chat.j2", "{% block subject %}x{% endblock %}")
    _write(tmp_path, "news/sms.j2", '{% extends "news/chat.j2" %}')
    _write(tmp_path, "news/fine.j2", "x")
    steps = [LadderStep(channel=c, after_ms=0, template="news") for c in ("email", "push", "chat", "sms", "fine")]
    faults = check_templates(tmp_path, {"news": Ladder(kind="news", steps=tuple(steps))})
    told = [fault.removeprefix(str(tmp_path) + "/news/") for fault in faults]
    assert told == [
        "email.j2: there is no block txt; the blocks are subject, text, html",
        "email.j2: e-mail needs a block subject",
        "email.de.j2: line 1: Unexpected end of template. Jinja was looking for the following tags: 'endblock'. "
        "The innermost block that needs to be closed is 'block'.",
        "push.j2: there is no such template; create it",
        "chat.j2: there is a subject and neither a block text nor a block html",
        "sms.j2: a template may not extend another; import a macro in its place",
    ]


def test_the_default_configuration_is_whole() -> None:
    """Every step of the ladders that ship has a channel and a template."""
    from deploy.configuration import load_configuration

    found = load_configuration(Path(__file__).parents[3] / "deploy" / "config")
    assert {step.channel for ladder in found.ladders.values() for step in ladder.steps} <= found.channels.keys()
