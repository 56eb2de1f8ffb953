"""What a message says: Jinja templates by template name, channel and language, filled when the call is made.

Layout: `templates/<template>/<channel>[.<locale>].j2`. For the locale `de-AT` the first that exists counts of
`email.de-AT.j2`, `email.de.j2` and `email.j2`; the last one must exist. A file has blocks `subject`, `text` and `html`;
a file without any block is the text. E-mail needs `subject` and one of the other two. Values are escaped in `html` and
only there. A template may use the fields of the notification's data by name, and `data`, `kind`, `channel`, `recipient`
and `locale`; a name that does not exist is an error, never an empty space. Blocks stand in the file itself: a file may
`import` and `include` others of the folder and may not `extends` one.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import StrictUndefined, meta, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.records import Delivery
from schemas.state import Ladder

BLOCKS = ("subject", "text", "html")
LIMIT = 512 * 1024
"""Characters of one rendered part; far above any message that a provider takes."""
LOOK_SECONDS = 1.0
"""How long a template that was changed, made or removed may go unnoticed."""
SUBJECT_CHANNELS = frozenset({"email"})

_Fill = Callable[[Context], Iterator[str]]
_LOCALE = re.compile(r"[A-Za-z0-9]{1,8}(-[A-Za-z0-9]{1,8})*")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Message:
    """A filled template; what the file does not have is None."""

    subject: str | None = None
    text: str | None = None
    html: str | None = None


class TemplateError(ValueError):
    """The message cannot be made; says which template and why, without the values."""


class Templates:
    """The templates of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[tuple[str, str, str | None], str | None] = {}
        self._loaded: dict[tuple[str, bool], jinja2.Template] = {}
        self._looked_at = 0.0
        loader = jinja2.FileSystemLoader(folder)
        self._plain = _environment(loader, autoescape=False)
        self._escaped = _environment(loader, autoescape=True)

    def render(self, claim: Delivery) -> Message:
        """The message of a claim.

        Raises:
            TemplateError: there is no such template, or it fails on this data.
        """
        self._look()
        asked = claim.template, claim.channel, claim.locale
        if asked not in self._names:
            self._names[asked] = self.find(*asked)
        name = self._names[asked]
        if name is None:
            raise TemplateError(f"there is no template {claim.template}/{claim.channel}.j2")
        values = {
            **claim.data,
            "data": claim.data,
            "kind": claim.kind,
            "channel": claim.channel,
            "recipient": claim.recipient,
            "locale": claim.locale,
        }
        try:
            return self._fill(name, values)
        except TemplateError:
            raise
        except jinja2.TemplateError as error:
            # Jinja names the missing variable in its message, and no value.
            raise TemplateError(f"{name}: {type(error).__name__}") from error
        except Exception as error:
            raise TemplateError(f"{name}: {type(error).__name__}") from error

    def find(self, template: str, channel: str, locale: str | None) -> str | None:
        """The name of the file that counts, relative to the folder."""
        if not (_NAME.fullmatch(template) and _NAME.fullmatch(channel)):
            return None
        for tag in _fallbacks(locale):
            name = f"{template}/{channel}{'.' + tag if tag else ''}.j2"
            if (self._folder / name).is_file():
                return name
        return None

    def problems(self, template: str, channel: str) -> list[str]:
        """What is wrong with a template of a channel, in all its languages."""
        base = f"{template}/{channel}.j2"
        if not (self._folder / base).is_file():
            return [f"{self._folder / base}: there is no such template; create it"]
        names = [base, *(f"{template}/{p.name}" for p in sorted((self._folder / template).glob(f"{channel}.*.j2")))]
        return [f"{self._folder / name}: {fault}" for name in names for fault in self._faults(name, channel)]

    def asks(self, template: str, channel: str) -> set[str]:
        """The names of the data that a sound template of a channel uses, as far as the file itself tells."""
        tree = self._plain.parse((self._folder / template / f"{channel}.j2").read_text(encoding="utf-8"))
        given = {
            "data",
            "kind",
            "channel",
            "recipient",
            "locale",
            *(node.target for node in tree.find_all(nodes.Import)),
        }
        of_data = {
            node.attr
            for node in tree.find_all(nodes.Getattr)
            if isinstance(node.node, nodes.Name) and node.node.name == "data"
        }
        return (meta.find_undeclared_variables(tree) - given) | of_data

    def _faults(self, name: str, channel: str) -> list[str]:
        try:
            blocks = self._plain.get_template(name).blocks
            tree = self._plain.parse((self._folder / name).read_text(encoding="utf-8"))
        except jinja2.TemplateSyntaxError as error:
            return [f"line {error.lineno}: {error.message}"]
        except (jinja2.TemplateError, UnicodeDecodeError) as error:
            return [f"{type(error).__name__}: {error}"]
        faults = [f"there is no block {b}; the blocks are {', '.join(BLOCKS)}" for b in blocks if b not in BLOCKS]
        if tree.find(nodes.Extends) is not None:
            faults.append("a template may not extend another; import a macro in its place")
        if channel in SUBJECT_CHANNELS and "subject" not in blocks:
            faults.append("e-mail needs a block subject")
        if "subject" in blocks and "text" not in blocks and "html" not in blocks:
            faults.append("there is a subject and neither a block text nor a block html")
        return faults

    def _look(self) -> None:
        """Ask the disk again once in a while: it costs as much as filling a template."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._names.clear()
            self._loaded.clear()

    def _template(self, name: str, *, escaped: bool) -> jinja2.Template:
        template = self._loaded.get((name, escaped))
        if template is None:
            template = (self._escaped if escaped else self._plain).get_template(name)
            # One plain mapping in place of a chain of them, which would be copied at each filling, link by link.
            template.globals = dict(template.globals)
            self._loaded[name, escaped] = template
        return template

    def _fill(self, name: str, values: Mapping[str, Any]) -> Message:
        plain = self._template(name, escaped=False)
        if not plain.blocks:
            return Message(text=_checked(name, plain.render(values)))
        parts = _blocks(plain, values)
        if "html" in parts:
            parts["html"] = _blocks(self._template(name, escaped=True), values)["html"]
        return Message(**{block: _checked(name, text) for block, text in parts.items() if block in BLOCKS})


def check_templates(folder: Path, ladders: Mapping[str, Ladder] | Iterable[Ladder]) -> list[str]:
    """Every fault of the templates that the ladders' steps name, one line each; empty if all is well."""
    found = ladders.values() if isinstance(ladders, Mapping) else ladders
    wanted = dict.fromkeys((step.template, step.channel) for ladder in found for step in ladder.steps)
    templates = Templates(folder)
    return [fault for template, channel in wanted for fault in templates.problems(template, channel)]


def _environment(loader: jinja2.BaseLoader, *, autoescape: bool) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _blocks(template: jinja2.Template, values: Mapping[str, Any]) -> dict[str, str]:
    """Every block of a template, filled. The whole file runs, so that its imports and its variables count."""
    found: dict[str, str] = {}

    def kept(name: str, fill: _Fill) -> _Fill:
        def fill_and_keep(context: Context) -> Iterator[str]:
            found[name] = "".join(fill(context))
            yield found[name]

        return fill_and_keep

    context = template.new_context(dict(values))
    for name, fills in context.blocks.items():
        fills[0] = kept(name, fills[0])
    for _ in template.root_render_func(context):
        pass
    return found


def _checked(name: str, text: str) -> str:
    text = text.strip("\n")
    if len(text) > LIMIT:
        raise TemplateError(f"{name}: the text is longer than {LIMIT} characters")
    return text


def _fallbacks(locale: str | None) -> list[str]:
    """`de-AT` gives de-AT, de and the file without a language; an odd tag gives the last one only."""
    if locale is None or _LOCALE.fullmatch(locale) is None:
        return [""]
    parts = locale.split("-")
    return ["-".join(parts[:n]) for n in range(len(parts), 0, -1)] + [""]
