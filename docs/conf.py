"""The documentation site, built by `make docs` with Sphinx: Markdown by MyST, the API from docstrings."""

import os
import re
from datetime import date

from pygments.lexers.special import TextLexer

import earmark

os.environ.setdefault("KERAS_BACKEND", "torch")  # earmark.keras is imported for its docstrings

project = "earmark"
author = "The earmark developers"
copyright = f"{date.today().year}, {author}"
release = version = earmark.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"earmark {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"  # every notebook is run from top to bottom, and an error stops the build
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300

add_module_names = False
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False

suppress_warnings = ["ref.python"]  # attributes of several classes have the same name

# What clones have outside docs/, and the site has as pages.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+\.md)(#[\w-]+)?")


def point_to_pages(app, docname, source):
    """Let links to documents outside docs/ point to their pages, or else to copies to download."""
    depth = docname.count("/")

    def moved(link):
        up, name, anchor = link.groups(default="")
        if up.count("../") <= depth:
            return link[0]
        return f"]({'../' * depth}{PAGES[name]}{anchor}" if name in PAGES else f"](path:{up}{name}"

    source[0] = LINK.sub(moved, source[0])


# How a package is divided into modules: the last sentence of its docstring, for those who change it.
LAYOUT = re.compile(r"\s*\b(Files|Modules)(, each importing only those before it)?:\s+(- )?`.*", re.DOTALL)
ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[(.*?)\]\]")
PRIVATE = re.compile(r", _\w+: [^=]*= [^=]*(?=, \w+:|\)$)")


def shorten_signature(app, what, name, obj, options, signature, returns):
    """Write arrays as code does, NDArray[float32], and leave out parameters that are not public."""
    if signature:
        while (shorter := PRIVATE.sub("", signature, count=1)) != signature:
            signature = shorter
        signature = ARRAY.sub(r"~numpy.typing.NDArray[\1]", signature)
    if returns:
        returns = ARRAY.sub(r"~numpy.typing.NDArray[\1]", returns)
    return signature, returns


def to_restructured_text(app, what, name, obj, options, lines):
    """Docstrings mark code as Markdown does: `name`, and indented blocks."""
    text = "\n".join(lines)
    if what == "module":
        text = LAYOUT.sub("", text)
    parts, was_code = [], False
    for part in text.split("\n\n"):
        is_code = what == "module" and part.startswith("    ")
        if is_code and not was_code:
            parts.append("::")
        elif not is_code and not part.lstrip().startswith(">>>"):
            part = re.sub(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))", lambda m: f"``{m[1]}``" + "\\" * bool(m[2]), part)
            part = part.replace("|", r"\|")
        parts.append(part)
        was_code = is_code
    lines[:] = "\n\n".join(parts).split("\n")


def setup(app):
    app.connect("source-read", point_to_pages)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=400)  # before napoleon
    for name in ("csv", "tsv"):
        app.add_lexer(name, TextLexer)
