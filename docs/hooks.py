"""What MkDocs does to the pages, so that the same files can be read in an editor, in the repository and on the site.

- README.md is the first page.
- A link to a file outside docs/, such as ../samples/cpp, leads to a page that shows this file or folder.
- Python-Markdown wants four blanks where CommonMark is content with two or three.
- `<!-- names of ue_rl.bridges -->` becomes the reference of what this package offers.
- What docs/catalogue.py takes from the code: the mistakes of checking.md, the errors of troubleshooting.md.
- Comments that set a block up for the tests are left out.
- Headings of the third level between `<!-- tabs -->` and `<!-- end of tabs -->` become tabs.

A page whose lists, tables or code blocks would be others than CommonMark's is a warning, and `--strict` fails.
"""

from __future__ import annotations

import ast
import logging
import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any

from catalogue import filled
from markdown_it import MarkdownIt
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r" *(`{3,}|~{3,})")
NAMES = re.compile(r"^<!-- names of ([\w.]+) -->$", re.M)
SETUP = re.compile(r"^<!-- setup\n.*?^-->\n\n", re.M | re.S)
TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- end of tabs -->$", re.M | re.S)
LANGUAGES = {
    ".py": "python", ".c": "c", ".h": "c", ".hpp": "cpp", ".cpp": "cpp", ".cs": "csharp", ".gd": "gdscript",
    ".yaml": "yaml", ".json": "json", ".fbs": "text", ".txt": "cmake",
}  # fmt: skip
homes: dict[str, str] = {"index.md": "README.md"}  # page of the site -> file of the repository that it shows


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md, and what the pages link to outside of docs/."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text("utf-8")))
    waiting = [("README.md", (ROOT / "README.md").read_text("utf-8"))]
    waiting += [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    while waiting:
        home, text = waiting.pop()
        for target in outside(home, text):
            uri = page_of(target)
            if uri in homes:
                continue
            homes[uri] = f"{target}/README.md" if (ROOT / target).is_dir() else target
            content = shown(target)
            files.append(File.generated(config, uri, content=content))
            if homes[uri].endswith(".md"):
                waiting.append((homes[uri], content))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Links, fences, indents and names."""
    uri = page.file.src_uri
    home = homes.get(uri, f"docs/{uri}")
    markdown = TABS.sub(lambda found: tabs(found[1]), SETUP.sub("", markdown))
    if uri not in homes or home.endswith(".md"):
        markdown = "\n".join(indented(rewritten(markdown, home, uri)))
    return NAMES.sub(lambda found: reference(found[1]), filled(markdown))


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Compares the page with what CommonMark makes of it."""
    uri = page.file.src_uri
    if uri in homes or uri.startswith("api/"):
        return html
    text = TABS.sub(lambda found: "\n".join(line for _, line in titled(found[1])), filled(page.file.content_string))
    expected = MarkdownIt("commonmark").enable("table").render(text)
    for tag in ("ol", "ul", "li", "pre", "table", "img"):
        mine, theirs = (len(re.findall(rf"<{tag}\b", text)) for text in (html, expected))
        if mine != theirs:
            log.warning("docs/%s: %d <%s> on the site, %d in CommonMark", uri, mine, tag, theirs)
    mine, theirs = headings(html), headings(expected)
    if mine != theirs:
        log.warning("docs/%s: headings %s on the site, %s in CommonMark", uri, mine - theirs, theirs - mine)
    return html


def titled(text: str) -> list[tuple[str, str]]:
    """(title of the tab that begins here or "", line or "") of what stands between two marks."""
    out = []
    for line, code in lines_of(text):
        title = None if code else re.fullmatch(r"### (.+)", line)
        out.append((title[1], "") if title else ("", line))
    return out


def tabs(text: str) -> str:
    """The same for pymdownx.blocks.tab."""
    out: list[str] = []
    for title, line in titled(text):
        end = ["///", ""] if "/// tab" in "\n".join(out) else []
        out += [*end, f"/// tab | {title}", ""] if title else [line]
    return "\n".join([*out, "///"])


def headings(html: str) -> set[str]:
    """Their texts."""
    found = re.findall(r"<h[1-6][^>]*>(.*?)</h[1-6]>", html, re.S)
    return {re.sub(r"<a class=\"headerlink.*?</a>|<[^>]+>", "", text) for text in found}


def outside(home: str, text: str) -> list[str]:
    """The files and folders outside docs/ that a file links to."""
    found = []
    for line, code in lines_of(text):
        for link in [] if code else LINK.findall(line):
            target = resolved(home, link[1])
            if target is not None and not target.startswith("docs/") and target != "README.md":
                found.append(target)
    return found


def resolved(home: str, link: str) -> str | None:
    """What a relative link means, from the repository's root; None: it is no such link."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(home), link.partition("#")[0]))
    return target if (ROOT / target).exists() else None


def page_of(target: str) -> str:
    """The page of the site that shows a file of the repository."""
    if target == "README.md":
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"source/{target}/index.md" if (ROOT / target).is_dir() else f"source/{target}.md"


def shown(target: str) -> str:
    """A page that shows a file, or a folder with its README."""
    path, head = ROOT / target, "---\nsearch:\n  exclude: true\n---\n\n"
    if not path.is_dir():
        text = path.read_text("utf-8")
        if path.suffix == ".md":
            return head + text
        fence = "`" * 5
        return f"{head}# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"
    listed = subprocess.run(["git", "ls-files", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name[len(target) + 1 :] for name in listed.split("\n") if Path(name).suffix in LANGUAGES]
    readme = path / "README.md"
    text = readme.read_text("utf-8") if readme.exists() else f"# {target}\n"
    return head + text + "\n## Files\n\n" + "".join(f"- [{name}]({name})\n" for name in sorted(names))


def rewritten(text: str, home: str, uri: str) -> list[str]:
    """The lines, with links for the site, and fences that say the language alone."""

    def link(found: re.Match[str]) -> str:
        target = resolved(home, found[2])
        if target is None:
            return found[0]
        relative = posixpath.relpath(page_of(target), posixpath.dirname(uri) or ".")
        anchor = "".join(found[2].partition("#")[1:])
        return f"{found[1]}{relative}{anchor}{found[3]}"

    out = []
    for line, code in lines_of(text):
        if not code:
            line = re.sub(r"^(#+ .*[^ #])#$", r"\1\#", line)  # noqa: PLW2901 - "C#" would lose its last letter
            out.append(LINK.sub(link, line))
        elif fence := re.fullmatch(r"( *```\w+) (\w+)", line):
            out.append(fence[1])
        else:
            out.append(line)
    return out


def indented(lines: list[str]) -> list[str]:
    """What stands within a list's item, with four blanks; a blank line before a list."""
    out: list[str] = []
    within, code = 0, False
    for line in lines:
        fence = FENCE.match(line) is not None
        item = None if code or fence else re.match(r"([-*]|\d+\.) +", line)
        if item:
            if not within and out and out[-1].strip():
                out.append("")
            within = len(item[0])
        elif within and line.strip() and not line.startswith(" " * within):
            within = 0
        elif within and line.strip():
            line = "    " + line[within:]  # noqa: PLW2901 - as it goes on
        code ^= fence
        out.append(line)
    return out


def lines_of(text: str) -> list[tuple[str, bool]]:
    """(line, whether it is code or a fence)."""
    out, code = [], False
    for line in text.splitlines():
        fence = FENCE.match(line) is not None
        out.append((line, code or fence))
        code ^= fence
    return out


def reference(package: str) -> str:
    """Directives of mkdocstrings for all public names, functions first; those of a module in the order of its file.

    A package imports them as `X as X`, in its `__init__.pyi` where it has one; a module lists them as `__all__`, or
    they are its classes and functions.
    """
    place = ROOT.joinpath(*package.split("."))
    is_package = place.is_dir()
    files = [place / "__init__.pyi", place / "__init__.py", place.with_suffix(".py")]
    tree = ast.parse(next(file for file in files if file.is_file()).read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != package]
    imports = [alias for node in found for alias in node.names]
    listed = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
        if not name.isupper()
    ]
    names = [alias.name for alias in imports if alias.asname == alias.name] or listed
    if not names and not is_package:
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    elif is_package or not names:
        names.sort(key=lambda name: (name[0].isupper(), name.lower()))
    if not names:
        log.warning("%s offers no name that docs/hooks.py finds", package)
    return "\n\n".join(f"::: {package}.{name}" for name in names)
