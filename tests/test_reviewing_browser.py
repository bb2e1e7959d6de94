"""`earmark review` in a real browser, as a person uses it."""

import json
import re
import sys

import pytest
from review_job import NAMES, chromium, make_job, served

from earmark.formats import read_labels
from earmark.reviewing.again import Trainer

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


class Page:
    """A page of a review, which must not complain."""

    def __init__(self, browser, url, **options):
        options = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark", **options}
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.goto(url)
        self.until("() => document.querySelectorAll('#queue .item, #recordings .item').length > 0")

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def until(self, function, argument=None):
        """Wait until a function holds; the page's policy forbids Playwright's own way, which evaluates text in it."""
        wait_until(self.page, lambda: self.page.evaluate(function, argument), function)

    def says(self, text):
        """Wait for a message, and remove it, so that it is not taken for the next one with the same text."""
        found = """t => { const box = document.getElementById('status'), is = box.textContent.includes(t);
        if (is) box.textContent = ''; return is; }"""
        self.until(found, text)

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def wait(self, selector, text):
        found = "([s, t]) => document.querySelector(s)?.textContent.includes(t)"
        self.until(found, [selector, text])

    def scroll(self, selector, pixels):
        """Scroll a list to so many pixels before its end."""
        scroll = "(box, pixels) => { box.scrollTop = box.scrollHeight - box.clientHeight - pixels; }"
        self.page.locator(selector).evaluate(scroll, pixels)
        self.page.wait_for_timeout(100)

    def hold(self, pattern):
        """Requests from now on, which wait for `continue_`."""
        held = []
        self.page.route(pattern, lambda route: held.append(route))
        return held

    def close(self):
        self.context.close()
        assert self.complaints == []


@pytest.fixture
def found(tmp_path):
    return make_job(tmp_path)


def journal(found):
    return [json.loads(line) for line in (found / "verdicts.jsonl").read_text().splitlines()]


def wait_until(page, holds, what="it"):
    for _ in range(200):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"within ten seconds, {what} did not happen")


def is_drawn(page):
    """Whether the canvas shows more than one colour in the middle of the spectrogram."""
    return page.evaluate(
        """() => { const c = document.getElementById('view'), x = c.getContext('2d');
        const d = x.getImageData(c.width * .3, c.height * .2, c.width * .5, c.height * .4).data, seen = new Set();
        for (let k = 0; k < d.length; k += 4) seen.add(d[k] + 256 * d[k + 1]); return seen.size > 20; }"""
    )


def test_a_review_with_the_keyboard_alone(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        page = one.page
        one.wait("#inspector h2", "owl")
        one.until("() => document.getElementById('facts').textContent.includes('2026-05-14')")
        one.press("y")
        one.says("owl: right")
        one.wait("#inspector h2", "dog")
        one.press("x")
        one.says("dog: wrong")
        one.wait("#progress-text", "2 of 8 events judged")
        one.press("u", "z")
        one.says("Undone")
        one.wait("#progress-text", "2 of 8")
        one.press("Shift+Z")
        one.says("Redone")
        one.wait("#progress-text", "3 of 8")
        one.press("k")  # back to the owl, to call it an eagle
        one.press("e")
        page.keyboard.type("eagle")
        one.press("Enter")
        one.says("Now eagle")
        one.press("t")
        page.keyboard.type("<b>far</b> away")
        one.press("Control+Enter")
        one.wait("#inspector .note", "<b>far</b> away")
        one.press("m")
        one.says("Recording checked")
        assert page.locator("#checked").is_checked()
        one.press("?")
        assert page.locator("dialog[open]").is_visible()
        assert "no other events" in one.text("#dialog-body")
        one.press("Escape")
        one.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        one.press("p")
        one.wait("#dialog-body", "eagle")
        one.press("Escape")
        page.reload()
        one.wait("#progress-text", "4 of 8")
        one.press("z")
        one.says("Undone")
        one.until("() => !document.getElementById('checked').checked")
        one.close()
    assert [line["action"] for line in journal(found)].count("undo") == 2
    table = read_labels(found / "verdicts.csv")
    assert {row.label for row in table if row.is_event} == {"owl", "eagle"}


def test_what_was_loading_during_an_action_is_loaded_again(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        one.until("() => location.hash")  # of the event that is shown, and opened again
        one.press("m")
        one.says("Recording checked")
        held = one.hold(re.compile(r"api/recordings/\d+$"))
        one.page.reload()
        wait_until(one.page, lambda: len(held) == 1)
        outdated = held[0].fetch()
        one.press("z")
        one.says("Undone")
        held[0].fulfill(response=outdated)
        wait_until(one.page, lambda: len(held) == 2)
        held[1].continue_()
        one.wait("#name", ".wav")
        assert outdated.json()["checked"]
        assert not one.page.locator("#checked").is_checked()
        one.close()


def test_zoom_play_drag_and_a_second_tab(browser, found):
    with served(found) as server:
        one, two = Page(browser, server.url), Page(browser, server.url, color_scheme="light")
        page = one.page
        one.wait("#inspector h2", "owl")
        wait_until(page, lambda: is_drawn(page))
        before = page.screenshot(clip={"x": 400, "y": 160, "width": 800, "height": 300})
        one.press("+", "+", "ArrowRight")
        wait_until(page, lambda: page.screenshot(clip={"x": 400, "y": 160, "width": 800, "height": 300}) != before)
        one.press("f")
        one.until("() => document.getElementById('view').dataset.offset === '3.4000'")
        one.press("Space")
        one.until("() => document.getElementById('audio').currentTime > 0.1")
        one.press("Space")
        one.press("s", "l", "b", "Space")
        one.until("() => document.getElementById('audio').playbackRate === 0.5")
        assert page.evaluate("document.getElementById('audio').loop")
        assert page.locator("#band").get_attribute("aria-pressed") == "true"
        one.press("Space")
        with page.expect_response(re.compile("api/actions")) as answer:
            drag(page, 2.0, 2.3)
        event = answer.value.json()["events"][0]
        assert (event["onset"], event["offset"]) == (1.0, pytest.approx(2.3, abs=0.02))
        one.wait("#inspector dl", "was")
        two.wait("#queue .item .badge", "right")  # the second tab notices
        two.press("z")
        two.says("Undone")
        one.until("() => !document.querySelector('#inspector dl').textContent.includes('was')")
        one.close()
        two.close()


def drag(page, *times):
    """Press the mouse over the spectrogram, and move it from one time to another."""
    box = page.locator("#view").bounding_box()
    shown = page.evaluate("() => ({...document.getElementById('view').dataset})")
    onset, offset, gutter = float(shown["onset"]), float(shown["offset"]), 110
    xs = [box["x"] + gutter + (time - onset) / (offset - onset) * (box["width"] - gutter) for time in times]
    page.mouse.move(xs[0], box["y"] + 100)
    page.mouse.down()
    for x in xs[1:]:
        page.mouse.move(x, box["y"] + 100, steps=3)
    page.mouse.up()


def test_adding_events_the_grid_links_and_exports(browser, found, tmp_path):
    with served(found) as server:
        one = Page(browser, server.url)
        page = one.page
        one.wait("#inspector h2", "owl")
        one.until("() => document.getElementById('view').dataset.offset === '3.4000'")
        one.press("w")
        drag(page, 4.1, 4.6)
        one.press("a")
        page.keyboard.type("do")
        one.press("Enter")
        one.says("Added dog")
        assert re.search(r"#20260514_221500.wav@4\.(09|10|11)-4\.(59|60|61)$", page.url)
        page.locator("#copy-link").click()
        link = page.url
        one.press("n")
        one.says("Nothing else")
        one.press("g")
        page.wait_for_selector(".card canvas")
        one.press("ArrowRight", "Enter", "ArrowRight", "Enter", "y")
        one.says("2 events: right")
        one.press("g", "o")
        with page.expect_download() as saved:
            page.locator("#export-save").click()
        saved.value.save_as(tmp_path / "saved.csv")
        other = Page(browser, link)
        other.wait("#inspector h2", "dog")
        other.wait("#inspector dl", "4.1")
        other.close()
        one.close()
    assert len(read_labels(tmp_path / "saved.csv")) == 3
    added = next(line for line in journal(found) if line["action"] == "add")
    assert (added["label"], added["recording"]) == ("dog", NAMES[0])
    assert len(next(line for line in journal(found) if len(line.get("events", "")) == 2)["events"]) == 2


def test_keys_in_the_grid_are_about_the_snippet_with_the_focus(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "owl")
        one.press("g")
        one.page.wait_for_selector(".card canvas")
        one.until("() => document.activeElement.classList.contains('card')")
        left = one.page.locator("#queue .item").count()
        one.wait("#queue-summary", f"{left} events not judged")
        one.press("m")  # about a recording that is not shown
        one.says("needs the recording view")
        one.press("ArrowRight", "e")
        one.page.keyboard.type("eagle")
        one.press("Enter")
        one.says("Now eagle")
        one.press("g")
        one.wait("#inspector h2", "eagle")
        one.wait("#inspector dl", "3.000 s")
        one.wait("#queue-summary", f"{left - 1} events not judged")
        one.page.select_option("#status-filter", "disputed")
        one.wait("#queue-summary", "no events with disagreements")
        one.press("Tab", "g")
        one.wait("#grid", "No events in this queue")
        one.close()
    assert [line["action"] for line in journal(found)] == ["verdict"]


def test_a_verdict_settles_once(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "owl")
        event = one.page.locator("#queue .item").first.get_attribute("data-id")
        for name, verdict in (("ada", "right"), ("bea", "wrong")):
            server.review.act(
                {"id": name, "reviewer": name, "action": "verdict", "verdict": verdict, "events": [event]}
            )
        one.wait("#inspector .lead", "disputed")
        one.press("v")
        one.wait("#inspector .lead", "settles")
        one.press("y")
        one.wait("#inspector h2", "dog")
        one.press("k")
        one.wait("#inspector .lead", "right")
        one.press("u")
        one.says("owl: unsure")
        one.page.locator("#queue .item").first.click()
        one.until("() => !document.querySelector('#inspector .lead').textContent.includes('settles')")
        one.press("m")
        one.says("3 events without a verdict now count as wrong")
        one.close()
    assert [line.get("settles", False) for line in journal(found)] == [False, False, True, False, False]


def test_a_key_pressed_twice_judges_one_event(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "owl")
        held = one.hold("**/api/actions")
        one.press("y", "y")  # the second before the answer to the first
        for count in (1, 2):
            wait_until(one.page, lambda count=count: len(held) == count)
            held[-1].continue_()
        wait_until(one.page, lambda: len(journal(found)) == 2)
        one.page.wait_for_timeout(200)
        one.until("() => document.querySelectorAll('#queue .item')[1].ariaSelected === 'true'")
        one.close()


def test_the_queue_continues_after_an_error_and_while_it_loads(browser, tmp_path):
    events = [(k, k + 0.5, "owl", 0.5) for k in range(75)]
    with served(make_job(tmp_path, events=events, seconds=76.0)) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "owl")
        one.page.route("**/api/queue/*", lambda route: route.abort())
        one.page.locator("#queue .item").last.click()
        one.press("j")
        one.says("the server does not respond")
        one.page.unroute("**/api/queue/*")
        held = one.hold("**/api/queue/*")
        one.scroll("#queue", 100)
        one.scroll("#queue", 0)
        wait_until(one.page, lambda: held)  # the list loads more
        one.press("j")
        wait_until(one.page, lambda: len(held) == 2)
        for route in held:
            route.continue_()
        one.until("() => document.querySelectorAll('#queue .item')[100]?.ariaSelected === 'true'")
        assert one.page.locator("#queue .item").count() == 150
        one.context.close()


def test_lists_of_recordings_are_loaded_once_and_the_last_choice_counts(browser, found):
    rows = [{"index": k, "name": f"{k}.wav", "counts": {}} for k in range(300)]
    with served(found) as server:
        one = Page(browser, server.url)
        page = one.page
        one.wait("#name", NAMES[0])
        first, rest = ({"total": 300, "recordings": part} for part in (rows[:200], rows[200:]))
        page.route("**/api/recordings?count=200", lambda route: route.fulfill(json=first))
        held = one.hold("**/api/recordings?first=200*")
        page.locator("#tab-recordings").click()
        one.until("() => document.querySelectorAll('#recordings .item').length === 200")
        one.scroll("#recordings", 100)
        one.scroll("#recordings", 0)
        wait_until(page, lambda: held)
        for route in held:
            route.fulfill(json=rest)
        one.until("() => document.querySelectorAll('#recordings .item').length >= 300")
        page.wait_for_timeout(100)
        assert page.locator("#recordings .item").count() == 300
        held = one.hold("**/api/recordings/1")
        one.scroll("#recordings", 10**6)
        page.locator("#recordings .item").nth(1).click()
        wait_until(page, lambda: held)
        page.locator("#recordings .item").nth(0).click()  # the recording that is still shown
        held[0].continue_()
        page.wait_for_timeout(300)
        assert one.text("#name") == NAMES[0]
        one.close()


def test_durations_are_rounded_as_a_whole(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        texts = one.page.evaluate(
            "() => import('./static/text.js').then(m => [2.5, 59.97, 119.7, 3599.7, 7199].map(m.duration))"
        )
        one.close()
    assert texts == ["2.50 s", "1 min 0 s", "2 min 0 s", "1 h 0 min", "2 h 0 min"]


def test_buttons_are_about_the_verdict_of_the_present_reviewer(browser, found):
    with served(found) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "owl")
        one.press("y")
        one.says("owl: right")
        one.wait("#inspector h2", "dog")
        one.press("k")
        one.wait("#inspector h2", "owl")
        one.page.locator("#reviewer-button").click()
        one.page.locator("#dialog input").fill("bea")
        one.press("Enter")
        one.wait("#reviewer", "bea")
        one.page.locator("#inspector .verdict.right").click()
        one.says("owl: right")
        one.close()
    verdicts = [(line["reviewer"] == "bea", line["verdict"]) for line in journal(found)]
    assert verdicts == [(False, "right"), (True, "right")]


def test_touch_and_buttons_are_enough_to_correct_and_add_events(browser, found):
    with served(found) as server:
        one = Page(browser, server.url, viewport={"width": 820, "height": 1180}, has_touch=True, is_mobile=True)
        page = one.page
        one.wait("#inspector h2", "owl")
        one.until("() => document.getElementById('view').dataset.offset === '3.4000'")
        touch = page.context.new_cdp_session(page)

        def swipe(*times):
            box = page.locator("#view").bounding_box()
            shown = page.evaluate("() => ({...document.getElementById('view').dataset})")
            onset, offset, gutter = float(shown["onset"]), float(shown["offset"]), 110
            for k, time in enumerate(times):
                x = box["x"] + gutter + (time - onset) / (offset - onset) * (box["width"] - gutter)
                kind = "touchMove" if k else "touchStart"
                points = [{"x": x, "y": box["y"] + 100}]
                touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        swipe(2.03, 2.1, 2.3)  # beside the edge: fingers are wide
        one.wait("#inspector dl", "was")
        page.locator("#inspector .verdict.right").click()  # a second time: withdrawn
        one.says("Verdict withdrawn")
        page.locator("#select-mode").click()
        swipe(2.6, 2.7, 3.0)
        page.get_by_role("button", name="Add A").click()
        page.keyboard.type("dog")
        page.locator(".choices li").first.click()
        one.says("Added dog")
        page.locator("#classes-button").click()
        page.get_by_role("button", name="History H").click()
        one.wait("#dialog-body", "added dog at")
        one.close()
    added = journal(found)[-1]
    assert (added["onset"], added["offset"]) == (pytest.approx(2.6, abs=0.02), pytest.approx(3.0, abs=0.02))


def test_names_with_markup_are_shown_as_text(browser, tmp_path):
    events = [(1.0, 2.0, "<img src=x onerror=alert(1)>", 0.9)]
    found = make_job(tmp_path, events=events, names=NAMES[1:], classes=("<img src=x onerror=alert(1)>",))
    with served(found) as server:
        one = Page(browser, server.url)
        one.wait("#inspector h2", "<img src=x")
        one.wait("#name", NAMES[1])
        assert one.text("#name") == NAMES[1]
        assert one.page.locator("img").count() == 0
        one.press("h")
        one.press("Escape")
        one.close()


@pytest.mark.parametrize(("width", "height", "scale"), [(640, 400, 2), (820, 1180, 1)])
def test_zoomed_to_200_percent_and_on_a_tablet_nothing_is_out_of_reach(browser, found, width, height, scale):
    with served(found) as server:
        one = Page(browser, server.url, viewport={"width": width, "height": height}, device_scale_factor=scale)
        one.wait("#inspector h2", "owl")
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width
        one.page.locator("#inspector .verdict.right").click()
        one.says("owl: right")
        one.close()


def test_recordings_without_events_and_a_server_that_goes_away(browser, tmp_path):
    make_job(tmp_path)
    with served(tmp_path / "sound", out=tmp_path / "out") as server:
        one = Page(browser, server.url)
        one.wait("#recordings .item b", NAMES[0])
        one.press("a")
        one.page.keyboard.type("wren")
        one.press("Enter")
        one.says("Added wren")
        server.stop()
        one.press("x")
        one.says("the server does not respond")
        assert one.page.locator("#offline").is_visible()
        one.context.close()
    assert len(read_labels(tmp_path / "out" / "verdicts.csv")) == 2
    assert (tmp_path / "out" / "recordings.json").is_file()


def test_the_page_says_that_detection_was_repeated(browser, found):
    (found / "events.csv").write_text("filename,onset,offset,label,confidence\n")
    with served(found) as server:
        one = Page(browser, server.url)
        one.press("y")
        one.says("owl: right")
        assert not one.page.locator("#notice").is_visible()
        (found / "events.csv").write_text("filename,onset,offset,label,confidence\na.wav,1.1,2.0,owl,0.9\n")
        one.press("x")
        one.says("dog: wrong")
        one.wait("#notice", "Detection was repeated in this folder. This page still shows the earlier events")
        assert one.page.locator("#notice").is_visible()
        one.close()


TRAINING = """import json, time
print(json.dumps({"stage": "training", "done": 1, "total": 2, "detail": "loss 0.5"}), flush=True)
time.sleep(0.5)
print(json.dumps({"summary": "No difference was shown.", "result": {}}))"""


def test_train_again_shows_progress_and_its_verdict(browser, found, monkeypatch):
    monkeypatch.setattr(Trainer, "command", (sys.executable, "-c", TRAINING))
    (found / "model.safetensors").write_bytes(b"a model")
    (found / "config.toml").write_text("")
    about = json.loads((found / "job.json").read_text())
    (found / "job.json").write_text(json.dumps({**about, "model": str(found / "model.safetensors")}))
    with served(found) as server:
        one = Page(browser, server.url)
        one.page.locator("#train-button").click()
        one.page.locator("#train-data").fill("clips")
        one.page.locator("#train-start").click()
        one.wait("#dialog-body pre", "training: 1 of 2, loss 0.5")
        one.wait("#dialog-body", "No difference was shown.")
        one.close()
