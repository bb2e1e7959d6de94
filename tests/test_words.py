"""The language of documents, docstrings, messages and pages: standard words, one spelling.

`HABITS` has phrases with their replacements. `EXCEPTIONS` has the texts that need one of them, with the reason. Code is
not checked: blocks of code and inline code in documents, names in modules and scripts.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
SOURCES = ("src/earmark/**/*.py",)
PAGES = ("src/earmark/**/*.j2", "src/earmark/**/*.html", "src/earmark/**/*.js", "src/earmark/**/*.toml")

HABITS = {
    # words that this project used in a sense of its own
    "house*": "module, package",
    "the door": "the entry point",
    "knob*": "setting, option",
    "go on": "continue, resume",
    "goes on": "continues, resumes",
    "mend*": "fix, repair, clean",
    "beside": "next to, in addition to, compared with",
    "trainings": "training runs",
    "equally many": "the same number of",
    "outside of": "outside",
    "else than": "other than",
    "another than": "other than",
    "whoever": "anyone who",
    "compute again": "recompute",
    "computed again": "recomputed",
    "compute it again": "recompute it",
    "computes it again": "recomputes it",
    "compute them again": "recompute them",
    "computes them again": "recomputes them",
    "that is no (?!longer|such|more|less)": "that is not a",
    "that are no (?!longer|such|more|less)": "that are not",
    "what is no (?!longer|such|more|less)": "what is not a",
    "are no part": "are not part",
    "they are no (?!longer|such|more|less)": "they are not",
    "do not go together": "cannot be combined",
    "does not go with": "cannot be combined with",
    "does not fit to": "does not match",
    "telephone*": "phone",
    "turn the page": "say what happens",
    "working form": "it implements",
    "if all is well": "say what is expected",
    "wholly": "completely",
    "thereof": "of it",
    "whereby": "by which",
    "a sentence each": "one sentence each",
    "mean-pooling": "mean pooling",
    "sub-folder*": "subfolder",
    # one English: British spelling
    "behavior*": "behaviour",
    "canceled": "cancelled",
    "canceling": "cancelling",
    "center*": "centre",
    "color*": "colour",
    "generaliz*": "generalise",
    "gray": "grey",
    "initializ*": "initialise",
    "labeled": "labelled",
    "labeling": "labelling",
    "minimiz*": "minimise",
    "modeled": "modelled",
    "modeling": "modelling",
    "neighbor*": "neighbour",
    "normaliz*": "normalise",
    "optimiz*": "optimise",
    "recogniz*": "recognise",
    "regulariz*": "regularise",
    "synthesiz*": "synthesise",
    "unlabeled": "unlabelled",
}
"""What to write instead, by phrase: a regular expression between the limits of words; `*` at its end is any ending."""

EXCEPTIONS = {
    "weakly labeled": "the title of the paper",
    "weak labeling": "the title of a paper",
    "pixel-level labeling": "the title of a paper",
    "Generalizing pooling functions": "the title of a paper",
    "F1 beside": "a caption of the stored results",
    "All scores beside": "a caption of the stored results",
    "beside the files behind": "a caption of the stored results",
    "beside the paper's": "a caption of the stored results",
    "center=True": "a setting of librosa",
    "upper center": "a position in matplotlib",
    "center left": "a position in matplotlib",
    "color-scheme": "a name in CSS",
    "RegularizedAutoPool": "output of an example",
    "except synthesizer": "an instrument of MedleyDB",
}
"""Texts that may have such phrases, with the reason."""


@cache
def texts(path):
    """Texts of a file, with the number of the line that each begins in."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return list(enumerate(without_code(content).splitlines(), 1))
    if path.suffix == ".py":
        return strings(content) + comments(content, "#")
    if path.suffix == ".js":
        return quoted(content) + comments(content, "//")
    return list(enumerate(content.splitlines(), 1))


def without_code(content):
    """Text in which blocks of code and inline code are blank."""
    blank = re.sub(r"^```.*?^```$", lambda block: re.sub(r".+", "", block[0]), content, flags=re.S | re.M)
    return re.sub(r"`[^`\n]+`", "", blank)


def strings(content):
    """Docstrings and other strings of more than one word, line by line."""
    return [
        (node.lineno + k, line)
        for node in ast.walk(ast.parse(content))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        for k, line in enumerate(without_code(node.value).splitlines())
        if not line.lstrip().startswith((">>>", "..."))
    ]


def quoted(content):
    """Strings of a script, of more than one word."""
    return [
        (n, text[0])
        for n, line in enumerate(content.splitlines(), 1)
        for text in re.finditer(r'"[^"]* [^"]*"|`[^`]* [^`]*`', line)
    ]


def comments(content, mark):
    found = ((n, re.search(rf"(?:^|\s){mark} (.*)", line)) for n, line in enumerate(content.splitlines(), 1))
    return [(n, comment[1]) for n, comment in found if comment]


@cache
def findings():
    """Every phrase that is found, as file, line, phrase and replacement; and the exceptions that were needed."""
    found, excused = [], set()
    for path in (path for pattern in (*DOCUMENTS, *SOURCES, *PAGES) for path in sorted(ROOT.glob(pattern))):
        content = path.read_text(encoding="utf-8").lower()
        for phrase, better in HABITS.items():
            pattern = re.compile(rf"\b{phrase.replace('*', '[a-z]*')}\b", re.I)
            is_there = re.split(r"[*(]", phrase)[0] in content and pattern.search(content)  # fast: most files have none
            for line, text in texts(path) if is_there else ():
                if pattern.search(text):
                    reasons = [exception for exception in EXCEPTIONS if exception in text]
                    excused.update(reasons)
                    if not reasons:
                        found.append(f"{path.relative_to(ROOT)}:{line}: {phrase!r}, better: {better}")
    return found, excused


def test_no_habit_is_left():
    found, _ = findings()
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_needed():
    _, excused = findings()
    assert excused == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("Turn the knob beside the door.", 1),
        ("`beside`", 0),
        ("```text\nbeside\n```\nnext to", 0),
    ],
)
def test_prose_is_checked_and_code_is_not(text, n):
    assert len(re.findall(r"\bbeside\b", without_code(text))) == n


def test_the_glossary_has_each_term_once_in_order():
    rows = re.findall(r"^\| ([a-z, ]+) \| [^|]+ \|$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    terms = rows[rows.index("term") + 1 :]
    assert len(terms) >= 30
    assert terms == sorted(set(terms))
