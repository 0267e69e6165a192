"""The pages of the site, which are the Markdown files of the repository.

Files outside `docs/` that readers want become pages too (`ELSEWHERE`). Links are written for the repository,
so each is resolved there: a link to a page leads to that page, one to another file leads to the repository's
host, and one to a file that does not exist fails the build. Anchors are checked by mkdocs.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks-readme.md",
    "examples/README.md": "examples.md",
    "examples/demo/README.md": "demo.md",
    "examples/cluster/README.md": "cluster-files.md",
}
"""Pages by their file in the repository, of those that lie outside `docs/`."""

FENCE = re.compile(r"^( *)```")
LINK = re.compile(r"(!?\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\])\(([^()\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists every decision behind the page of all of them."""
    decisions = [f"decisions/{page.name}" for page in sorted((ROOT / "docs" / "decisions").glob("0*.md"))]
    for _, pages in (section for item in config.nav or [] for section in item.items()):
        for item in pages if isinstance(pages, list) else []:
            if "Decisions" in item:
                item["Decisions"] = [item["Decisions"], *decisions]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what lies elsewhere."""
    for source, page in ELSEWHERE.items():
        head = "---\nhide: [navigation]\n---\n" if page == "index.md" else ""
        files.append(File.generated(config, page, content=head + (ROOT / source).read_text()))
    style = (ROOT / "site" / "style.css").read_text()
    files.append(File.generated(config, "assets/style.css", content=style))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as the site has them."""
    at = page.file.src_uri
    source = next((source for source, there in ELSEWHERE.items() if there == at), f"docs/{at}")
    lines, fenced, more = [], False, 0
    for line in markdown.split("\n"):
        if not fenced:
            # Two or three columns belong to a list's item in the repository, and four do here.
            indent = len(line) - len(line.lstrip())
            more = indent // 2 * 4 - indent
            line = LINK.sub(lambda link: f"{link[1]}({_target(link[2], source, at, config)})", line)
        fenced ^= FENCE.match(line) is not None
        lines.append(" " * more + line if more > 0 else line)
    return "\n".join(lines)


def _target(link: str, source: str, at: str, config: MkDocsConfig) -> str:
    """Where a link of the file `source`, which is the page `at`, leads on the site."""
    if link.startswith("#") or "://" in link:
        return link
    path, _, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / path).exists():
        raise PluginError(f"`{source}` links to `{link}`, and there is no `{path}`")
    anchor = anchor and f"#{anchor}"
    if (ROOT / path / "README.md").is_file():
        path = f"{path}/README.md"
    there = ELSEWHERE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
    if there is None:
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/main/{path}{anchor}"
    return posixpath.relpath(there, posixpath.dirname(at) or ".") + anchor
