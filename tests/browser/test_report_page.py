"""The report in a browser: it requests nothing, and all controls work by pointer and by keyboard."""

import io

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys
from trained_runs import HOSTILE

PAGES = ("images", "cce", "many", "rows", "hundred", "hostile", "comparison", "sweep")
# The position of a sample in the plot, computed from the page's own data as the page does.
POINT = """(() => {
    const [run, stage] = [JSON.parse(document.getElementById("data").textContent).runs[0], arguments[0]];
    const raw = Uint8Array.from(atob(run.coordinates), (c) => c.charCodeAt(0));
    const values = new Uint16Array(raw.buffer), n = atob(run.labels).length / 2, box = stage.getBoundingClientRect();
    const x = 54 + (values[arguments[1]] / 65535) * (box.width - 74);
    const y = 18 + (1 - values[n + arguments[1]] / 65535) * (box.height - 66);
    return [box.left + x, box.top + y];
})()"""


# The boxes of all names in the first plot, and the positions of its samples, as [left, top, right, bottom] and [x, y].
NAMES = """(() => {
    const stage = document.querySelector(".stage"), box = stage.getBoundingClientRect();
    const run = JSON.parse(document.getElementById("data").textContent).runs[0];
    const raw = Uint8Array.from(atob(run.coordinates), (c) => c.charCodeAt(0));
    const values = new Uint16Array(raw.buffer), n = atob(run.labels).length / 2;
    const points = Array.from({length: n}, (_, i) => [
        box.left + 54 + (values[i] / 65535) * (box.width - 74),
        box.top + 18 + (1 - values[n + i] / 65535) * (box.height - 66),
    ]);
    const names = Array.from(stage.querySelectorAll(".names > span"), (span) => {
        const {left, top, right, bottom} = span.getBoundingClientRect();
        return [left, top, right, bottom];
    });
    return {names, points, texts: Array.from(stage.querySelectorAll(".names > span"), (span) => span.textContent)};
})()"""


def point_at(browser, sample=0):
    """Move the pointer onto a sample."""
    stage = browser.driver.find_element("css selector", ".stage")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", stage)
    x, y = browser.run(POINT, stage, sample)
    move = {"type": "mouseMoved", "x": x, "y": y}
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", move)
    browser.settle()


def card_shown(browser):
    return not browser.run("document.querySelector('.card').hidden")


def shown(browser):
    """Return how many samples the plot reports as shown."""
    return int(browser.text(".status").split(" of ")[0].replace(",", ""))


def pixels(browser, selector):
    element = browser.driver.find_element("css selector", selector)
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("RGB")).astype(int)


def column(browser, place):
    return browser.run(
        "Array.from(document.querySelectorAll('#classes tbody:first-of-type tr'), (r) => r.cells[arguments[0]])"
        ".filter((c) => c && c.dataset.value !== undefined).map((c) => c.dataset.value)",
        place,
    )


@pytest.mark.parametrize("page", PAGES)
def test_no_request_and_no_complaint(browser, pages, page):
    browser.open(pages[page])
    point_at(browser)
    assert browser.requests() == []
    assert browser.complaints() == []


def test_the_security_policy_is_in_force(browser, pages):
    browser.open(pages["images"])
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    browser.run("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    browser.settle()
    assert browser.run("window.ran") is None
    assert sum("Content Security Policy" in text for text in browser.complaints()) == 2


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 700, 360])
@pytest.mark.parametrize("page", ["images", "rows", "hostile", "comparison", "sweep"])
def test_nothing_is_wider_than_the_screen(browser, pages, page, width, dark):
    browser.open(pages[page], width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_dark_and_light(browser, pages):
    brightness = {}
    for dark in (False, True):
        browser.open(pages["images"], dark=dark)
        brightness[dark] = pixels(browser, ".stage").mean()
    assert brightness[False] > 230
    assert brightness[True] < 60


def test_the_plot_follows_a_change_of_light(browser, pages):
    browser.open(pages["images"])
    before = browser.run("document.querySelector('.points').toDataURL()")
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    browser.settle()
    assert browser.run("document.querySelector('.points').toDataURL()") != before


def test_pointing_at_a_sample_shows_it(browser, pages):
    browser.open(pages["images"])
    assert not card_shown(browser)
    point_at(browser, 3)
    assert card_shown(browser)
    assert "test sample" in browser.text(".card")
    assert "class" in browser.text(".card .verdict")
    assert "%" in browser.text(".card .verdict")
    picture = browser.run(
        "Array.from(document.querySelector('.picture').getContext('2d').getImageData(0, 0, 96, 96).data)"
    )
    assert np.std(np.array(picture).reshape(-1, 4)[:, :3]) > 10
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 2, "y": 2})
    browser.settle()
    assert not card_shown(browser)


def test_a_touched_sample_stays_shown(browser, pages):
    browser.open(pages["images"], width=360)
    stage = browser.driver.find_element("css selector", ".stage")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", stage)
    x, y = browser.run(POINT, stage, 0)
    touch = "document.querySelector('.marks').dispatchEvent(new PointerEvent(arguments[0], {pointerType: 'touch',"
    for kind in ("pointerdown", "pointerup", "pointerleave"):
        browser.run(f"{touch} clientX: arguments[1], clientY: arguments[2]}}))", kind, x, y)
    assert card_shown(browser)


def test_rows_show_their_values(browser, pages):
    browser.open(pages["rows"])
    point_at(browser)
    values = browser.text(".card .values")
    assert values.count(",") == 12
    assert "(15 values)" in values
    assert browser.run("document.querySelector('.picture').hidden")


def test_samples_are_reached_by_keyboard(browser, pages):
    browser.open(pages["images"])
    browser.focus(".marks")
    browser.press(Keys.ARROW_RIGHT)
    assert card_shown(browser)
    names = {browser.text(".card .name")}
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_UP):
        for _ in range(3):
            browser.press(key)
            names.add(browser.text(".card .name"))
    assert len(names) > 3
    assert browser.text(".spoken").count("test sample") == 1
    browser.press(Keys.ESCAPE)
    assert not card_shown(browser)


def test_the_legend_hides_and_shows_a_class(browser, pages):
    browser.open(pages["images"])
    before, everything = shown(browser), pixels(browser, ".stage")
    button = browser.driver.find_element("css selector", ".legend [data-class='0']")
    button.click()
    browser.settle()
    assert button.get_attribute("aria-pressed") == "false"
    assert shown(browser) == before - 12
    assert (pixels(browser, ".stage") != everything).any()
    other = browser.driver.find_element("css selector", "#dimensions .legend [data-class='0']")
    assert other.get_attribute("aria-pressed") == "false"
    button.send_keys(Keys.SPACE)
    browser.settle()
    assert button.get_attribute("aria-pressed") == "true"
    assert shown(browser) == before


def test_all_none_and_mistakes_only(browser, pages):
    browser.open(pages["images"])
    everything = shown(browser)
    browser.driver.find_element("css selector", ".legend [data-classes='none']").click()
    browser.settle()
    assert shown(browser) == 0
    browser.driver.find_element("css selector", ".legend [data-classes='all']").click()
    browser.driver.find_element("css selector", "#mistakes").click()
    browser.settle()
    right = int(browser.run("document.querySelector('.figures span').textContent").split(" of ")[0])
    assert shown(browser) == everything - right


def test_a_hidden_sample_is_not_found(browser, pages):
    browser.open(pages["images"])
    browser.driver.find_element("css selector", ".legend [data-classes='none']").click()
    point_at(browser)
    assert not card_shown(browser)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("page", ["images", "rows", "many"])
def test_names_cover_neither_samples_nor_each_other(browser, pages, page, width):
    browser.open(pages[page], width=width)
    found = browser.run(NAMES)
    boxes, points = np.array(found["names"]), np.array(found["points"])
    assert len(boxes) >= {"images": 5, "rows": 2, "many": 0}[page]
    for i, (left, top, right, bottom) in enumerate(boxes):
        x, y = points.T
        assert not ((left < x) & (x < right) & (top < y) & (y < bottom)).any()
        for other in boxes[i + 1 :]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
    browser.open(pages[page], width=width)
    assert browser.run(NAMES) == found


def test_a_hidden_class_has_no_name(browser, pages):
    browser.open(pages["images"])
    name = browser.run(NAMES)["texts"][0]
    browser.driver.find_element("css selector", f".legend [data-class='{name.removeprefix('class ')}']").click()
    browser.settle()
    assert name not in browser.run(NAMES)["texts"]


def rows_shown(browser):
    rows = "Array.from(document.querySelectorAll('#classes .sortable tbody tr')).filter((r) => r.offsetParent)"
    return browser.run(f"{rows}.map((r) => [r.cells[0].dataset.value, Number(r.cells[2].dataset.value)])")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_table_of_a_hundred_classes_is_folded(browser, pages, scripts):
    """The twenty worst are shown until all are requested, with and without JavaScript."""
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
        browser.driver.get(pages["hundred"].as_uri())
        worst = rows_shown(browser)
        browser.driver.find_element("css selector", "#classes .unfold").send_keys(Keys.SPACE)
        everything = rows_shown(browser)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(worst) == 20
    assert len(everything) == 100
    assert worst == everything[:20]
    assert [recall for _, recall in everything] == sorted(recall for _, recall in everything)


def test_a_folded_table_is_sorted_as_a_whole(browser, pages):
    browser.open(pages["hundred"])
    browser.driver.find_elements("css selector", "#classes .sortable th button")[0].click()
    assert [name for name, _ in rows_shown(browser)] == [f"species {i:03}" for i in range(20)]


@pytest.mark.parametrize("page", ["comparison", "sweep"])
def test_no_table_of_a_comparison_scrolls_sideways(browser, pages, page):
    browser.open(pages[page], width=1280)
    wide = "Array.from(document.querySelectorAll('.scrolling')).filter((e) => e.scrollWidth > e.clientWidth)"
    assert browser.run(f"{wide}.map((e) => [e.getAttribute('aria-label'), e.scrollWidth, e.clientWidth])") == []
    assert browser.run("document.documentElement.scrollWidth") <= 1280


def test_other_axes(browser, pages):
    browser.open(pages["images"])
    before = browser.run("document.querySelector('.points').toDataURL()")
    browser.focus("#axis-x")
    browser.press(Keys.ARROW_DOWN)
    assert browser.run("document.querySelector('#axis-x').value") == "1"
    assert browser.run("document.querySelector('.points').toDataURL()") != before


def test_the_slider_changes_the_density_by_keyboard(browser, pages):
    browser.open(pages["images"])
    curves = "document.querySelector('.densities').innerHTML"
    first, note = browser.run(curves), browser.text("#dimension-figures")
    browser.focus("#dimension")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.text("output[for=dimension]") == "2"
    assert browser.run(curves) != first
    assert browser.text("#dimension-figures") != note
    assert browser.run("document.querySelectorAll('.bars .chosen').length") == 1
    browser.press(Keys.HOME)
    assert browser.run(curves) == first


def test_a_hidden_class_has_no_curve(browser, pages):
    browser.open(pages["images"])
    assert browser.run("document.querySelectorAll('.density').length") == 10
    browser.driver.find_element("css selector", "#dimensions [data-class='4']").click()
    browser.settle()
    assert browser.run("document.querySelectorAll('.density').length") == 9


def test_tables_sort_by_pointer_and_keyboard(browser, pages):
    browser.open(pages["images"])
    head = browser.driver.find_elements("css selector", "#classes .sortable th")[2]
    head.find_element("css selector", "button").click()
    recalls = [float(value) for value in column(browser, 2)]
    assert len(recalls) == 10
    assert recalls == sorted(recalls, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    browser.press(Keys.ENTER)
    assert [float(value) for value in column(browser, 2)] == sorted(recalls)
    assert head.get_attribute("aria-sort") == "ascending"
    browser.focus("#classes .sortable th button")
    browser.press(Keys.SPACE)
    assert column(browser, 0) == [f"class {i}" for i in range(10)]
    assert head.get_attribute("aria-sort") is None


def test_everything_is_reached_with_the_tab_key_and_seen(browser, pages):
    browser.open(pages["images"])
    wanted = {"axis-x", "axis-y", "mistakes", "dimension", "marks", "legend", "sortable", "SUMMARY", "command"}
    found = set()
    for _ in range(70):
        browser.press(Keys.TAB)
        found |= set(
            browser.run(
                "(() => { const e = document.activeElement; return [e.id, e.tagName, ...e.classList,"
                " ...(e.closest('.legend, .sortable')?.classList ?? [])]; })()"
            )
        )
        outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or browser.run("document.activeElement === document.body")
    assert wanted <= found


def test_hostile_names_are_text(browser, pages):
    browser.open(pages["hostile"])
    buttons = browser.driver.find_elements("css selector", "#embedding .legend [data-class] span")
    assert [button.get_attribute("textContent") for button in buttons] == list(HOSTILE)
    for sample in range(20):
        point_at(browser, sample)
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.run("document.querySelectorAll('img[src=x]').length") == 0
    assert browser.complaints() == []


def test_a_sample_is_ringed_in_every_run_of_a_comparison(browser, pages):
    browser.open(pages["comparison"])
    marks = "Array.from(document.querySelectorAll('.marks'), (c) => c.toDataURL())"
    before = browser.run(marks)
    point_at(browser)
    after = browser.run(marks)
    assert len(after) == 2
    assert all(new != old for new, old in zip(after, before, strict=True))
    assert browser.run("Array.from(document.querySelectorAll('.card'), (c) => c.hidden)") == [False, True]


def test_ten_thousand_points_stay_smooth(browser, pages):
    """Moving over 200 places shows many samples, and hiding a class redraws the plot."""
    browser.open(pages["many"])
    assert browser.text(".status") == "10,000 of 10,000 samples shown"
    point_at(browser)
    named = browser.run("""(() => {
        const marks = document.querySelector(".marks"), box = marks.getBoundingClientRect();
        const seen = new Set();
        for (let k = 0; k < 200; k++) {
            const [x, y] = [k / 200, ((7 * k) % 200) / 200];
            marks.dispatchEvent(new PointerEvent("pointermove", {
                clientX: box.left + box.width * x, clientY: box.top + box.height * y,
            }));
            seen.add(document.querySelector(".card .name").textContent);
        }
        return seen.size;
    })()""")
    assert named > 20
    browser.run("""document.querySelector(".legend [data-class]").click()""")
    assert browser.text(".status") != "10,000 of 10,000 samples shown"
    assert pages["many"].stat().st_size < 15e6
