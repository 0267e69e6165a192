"""`docs/api.md`: every public class and method, made from signatures and docstrings.

`HOTSET_DOCS=write python -m pytest tests/python/test_api_page.py` writes the page anew; without that this
test fails when it is stale.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

import hotset
from pages import ROOT

PAGE = ROOT / "docs" / "api.md"

HEAD = """\
# Python API

<!-- Made from the docstrings in `python/hotset`; change those, then run
`HOTSET_DOCS=write python -m pytest tests/python/test_api_page.py`. -->

What `import hotset` offers. [settings.md](settings.md) has the arguments and environment variables as tables,
[pytorch.md](pytorch.md) shows how they are used.
"""

PARTS = (
    ("Datasets", ("ImageFolder", "Shards", "Manifest", "Dataset")),
    ("The sampler", ("Sampler",)),
    ("Functions", ("connect", "stop_private", "doctor")),
    ("Doctor", ("Diagnosis",)),
    (
        "Errors",
        (
            "Error",
            "InvalidError",
            "ChangedError",
            "UnavailableError",
            "LostError",
            "InternalError",
            "HotsetWarning",
        ),
    ),
)

INTEGRATIONS = ("lightning.Callback", "accelerate.Hook", "transformers.Mixin")

ELSEWHERE = {"Client", "__version__"}
"""A raw connection, for programs that bring their own datasets; and text."""


def _signature(call: Any, name: str, *, bound: bool) -> str:
    """A call as one writes it, over several lines if it is long."""
    found = inspect.signature(call)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    returned = found.return_annotation
    end = "" if returned in (inspect.Signature.empty, "None", None) else f" -> {returned}"
    texts, keyword = [], False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            keyword = True
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            texts.append("*")
            keyword = True
        texts.append(_parameter(parameter))
    line = f"{name}({', '.join(texts)}){end}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    """An argument with its type and its default, as source has them."""
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{star}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    return f'{text} = "{default}"' if isinstance(default, str) else f"{text} = {default!r}"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that Hotset defines, each where it is defined first."""
    seen = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("hotset"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen or not (callable(member) or _is_property(member)):
                continue
            seen.add(name)
            if "not for everyday use" not in (inspect.getdoc(member) or ""):
                yield name, member


def _is_property(member: Any) -> bool:
    return isinstance(member, property) or type(member).__name__ == "cached_property"


def _described(name: str, thing: Any, members: bool) -> str:
    """A class or a function, with what it says of itself."""
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return f"### `{name}`\n\n{inspect.getdoc(thing)}\n"
    call = thing.__init__ if inspect.isclass(thing) else thing
    text = f"### `{name}`\n\n```py\n{_signature(call, name, bound=inspect.isclass(thing))}\n```\n"
    text += f"\n{inspect.getdoc(thing)}\n"
    for own, member in _members(thing) if members else ():
        said = inspect.getdoc(member)
        assert said, f"`{name}.{own}` has no docstring"
        if _is_property(member):
            text += f"\n#### `{own}`\n\n{said}\n"
        else:
            text += f"\n#### `{own}()`\n\n```py\n{_signature(member, own, bound=True)}\n```\n\n{said}\n"
    return text


def page() -> str:
    """The page as it should be."""
    text = HEAD
    shared = {name for name, _ in _members(hotset.Dataset)}
    for title, names in PARTS:
        text += f"\n## {title}\n"
        for name in names:
            thing = getattr(hotset, name)
            text += "\n" + _described(name, thing, members=name in ("Dataset", "Sampler"))
            if title == "Datasets" and name != "Dataset":
                own = [(key, member) for key, member in _members(thing) if key not in shared]
                text += "\nAttributes:\n\n"
                text += "".join(f"- `{key}`: {inspect.getdoc(member)}\n" for key, member in own)
    text += "\n## Integrations\n"
    for path in INTEGRATIONS:
        module, name = path.split(".")
        thing = getattr(importlib.import_module(f"hotset.integrations.{module}"), name)
        text += "\n" + _described(f"hotset.integrations.{path}", thing, members=path.startswith("accelerate"))
    return text


def test_every_public_name_is_on_the_page() -> None:
    assert {name for _, names in PARTS for name in names} | ELSEWHERE == set(hotset.__all__)


def test_the_page_is_fresh() -> None:
    wanted = page()
    if os.environ.get("HOTSET_DOCS") == "write":
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, (
        "run `HOTSET_DOCS=write python -m pytest tests/python/test_api_page.py`"
    )
