"""The content security policy of pages: it allows the script of the page and nothing else, and breaks nothing."""

import base64
import hashlib
import html
import re
import time
from importlib import resources

import pytest
from drawing import drawn
from report_runs import write_data, write_run
from review_job import chromium
from test_report_job import folder

from earmark.reporting.job import write_job_report
from earmark.reporting.runs import write_report

__all__ = ["folder"]
META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
EXPECTED = {
    "default-src": "'none'",
    "style-src": "'unsafe-inline'",
    "img-src": "data:",
    "media-src": "data:",
    "base-uri": "'none'",
    "form-action": "'none'",
}


@pytest.fixture(scope="module")
def runs_page(tmp_path_factory):
    data = write_data(tmp_path_factory.mktemp("policy") / "data")
    run = write_run(data.parent / "runs" / "cap", data, "cap", 0, 0.2, alpha=[1.8, 0.5, -0.4])
    with drawn():
        return write_report([run], data.parent / "page.html")[0].read_text(encoding="utf-8")


@pytest.fixture(params=["runs", "job"])
def page(request, runs_page):
    if request.param == "runs":
        return runs_page
    return write_job_report(request.getfixturevalue("folder")).read_text(encoding="utf-8")


def hash_of(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_script_and_the_style_of_the_page(page):
    (policy,) = META.findall(page)
    directives = dict(part.split(" ", 1) for part in html.unescape(policy).split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    assert directives == EXPECTED | {"script-src": hash_of(script), "style-src-elem": hash_of(style)}
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script>")


def test_templates_have_no_other_scripts():
    for template in (resources.files("earmark.reporting") / "templates").iterdir():
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"""\bon[a-z]+\s*=\s*["']|javascript:""", text), template.name
        if template.name.endswith(".html.j2") and template.name != "page.html.j2":
            assert not re.search(r"<style|<script(?! type=\"application/json\")", text), template.name


WATCH = """<script>
const seen = [];
addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
addEventListener("error", (event) => seen.push(String(event.message || event.target.tagName)), true);
addEventListener("load", async () => {
  const loaded = (each) => new Promise((done) => {
    each.onloadedmetadata = each.onerror = done;
    each.preload = "auto";
    each.load();
  });
  const players = [...document.querySelectorAll("audio")];
  await Promise.all(players.map(loaded));
  for (const each of document.images) each.loading = "eager";
  await Promise.all([...document.images].map((each) => each.decode().catch(() => {})));
  const table = document.querySelector("table.sortable");
  const result = {
    seen: [...seen],
    injected: window.injected,
    buttons: table.querySelectorAll("thead button").length,
    coloured: getComputedStyle(document.querySelector("h2")).borderTopStyle,
    silent: players.filter((each) => !(each.duration > 0)).length,
    players: players.length,
    broken: [...document.images].filter((each) => !each.naturalWidth).length,
    drawings: document.querySelectorAll("svg, canvas").length,
  };
  window.result = result;
});
</script>"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def watched(browser, tmp_path):
    """A function that returns what a browser says about a page."""

    def watch(text):
        (tmp_path / "watched.html").write_text(text.replace("<head>", "<head>" + WATCH, 1), encoding="utf-8")
        with browser.new_page() as page:
            page.goto((tmp_path / "watched.html").as_uri())
            deadline = time.monotonic() + 60
            while (result := page.evaluate("window.result")) is None and time.monotonic() < deadline:
                page.wait_for_timeout(50)
        return result

    return watch


def test_a_browser_shows_the_page_without_violations(page, watched):
    result = watched(page)
    assert result["seen"] == []
    assert result["buttons"] > 1
    assert result["coloured"] == "solid"
    assert result["drawings"] > 0
    assert (result["silent"], result["broken"]) == (0, 0)


def test_sound_is_part_of_the_page(runs_page, watched):
    assert watched(runs_page)["players"] > 0


@pytest.mark.parametrize(
    ("injected", "directive"),
    [
        ("<script>window.injected = 1</script>", "script-src-elem"),
        ("<p><svg onload='window.injected = 1'></svg></p>", "script-src-attr"),
        ("<img src='https://example.org/x.png'>", "img-src"),
        ("<style>body { color: red }</style>", "style-src-elem"),
    ],
)
def test_a_browser_refuses_what_is_injected(runs_page, watched, injected, directive):
    result = watched(runs_page.replace("<footer>", injected + "<footer>", 1))
    assert directive in result["seen"]
    assert result.get("injected") is None
