"""The page of an audit in a browser: keys and buttons decide, and the downloaded file has the decisions."""

import csv
import time

import pytest
from selenium.webdriver.common.keys import Keys
from trained_runs import HOSTILE, image_set, row_set, train_run

from deeplda.data.corrections import read_decisions
from deeplda.report.audit_page import audit_page
from deeplda.report.audited_run import audit_run, write_audit


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    """Pages about images with hostile class names, and about rows."""
    home = tmp_path_factory.mktemp("audits")
    sets = {"images": image_set(home / "images.npz", HOSTILE), "rows": row_set(home / "rows.npz", ("no", "yes"))}
    runs = {name: audit_run(train_run(home / name, file, label_noise=0.2)) for name, file in sets.items()}
    return {name: (run, write_audit(run, audit_page(run))[1]) for name, run in runs.items()}


@pytest.fixture
def downloads(browser, tmp_path):
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": False}
    )
    return tmp_path


def downloaded(browser, folder):
    """Click the button and return the file once it is complete."""
    browser.run("document.getElementById('download').click()")
    file, end = folder / browser.text("#download").removeprefix("Download "), time.monotonic() + 10
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return file


def chosen(browser):
    return int(browser.run("document.activeElement.dataset.row ?? -1"))


def leave(browser):
    """Forget the decisions, so that the next page opens without a question."""
    browser.run("document.querySelectorAll('.choice [aria-pressed=true]').forEach((button) => button.click())")


@pytest.mark.parametrize("name", ["images", "rows"])
def test_keys_decide_and_the_file_has_the_decisions(browser, audits, downloads, name):
    run, page = audits[name]
    order = run.audit.order.tolist()
    browser.open(page)
    assert chosen(browser) == order[0]
    browser.press("y", "n", Keys.ARROW_RIGHT, "Y", "d")
    assert chosen(browser) == order[5]
    assert browser.text("#decided").startswith("4 of ")
    file = downloaded(browser, downloads)
    assert file.name == f"decisions-{name}.csv"
    with file.open(newline="") as stream:
        rows = {row["sample"]: row["decision"] for row in csv.DictReader(stream)}
    names = [run.names[place] for place in order]
    assert rows == {names[0]: "accepted", names[1]: "rejected", names[3]: "accepted", names[4]: "dropped"}
    decided = read_decisions(file)
    assert {sample: row.decision for sample, row in decided.items()} == rows
    assert decided[names[0]].given == run.audit.given[order[0]]
    leave(browser)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("blob:")] == []


def test_undo_takes_back_the_last_decision_and_returns_to_its_card(browser, audits):
    run, page = audits["images"]
    order = run.order
    browser.open(page)
    browser.press("u")
    assert chosen(browser) == order[0]
    browser.press("y", "n", "y", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "u")
    assert chosen(browser) == order[2]
    assert browser.text("#decided").startswith("2 of ")
    # A decision that replaced another one.
    browser.press(Keys.ARROW_LEFT, "d", "u")
    assert chosen(browser) == order[1]
    card = browser.driver.switch_to.active_element
    assert card.get_attribute("data-decision") == "rejected"
    browser.press("u", "u", "u")
    assert chosen(browser) == order[0]
    assert browser.text("#decided").startswith("0 of ")


def test_the_first_card_is_marked_when_the_page_opens(browser, audits):
    run, page = audits["images"]
    browser.open(page)
    assert chosen(browser) == run.order[0]
    assert browser.run("scrollY") == 0
    outlines = browser.run(
        "Array.from(document.querySelectorAll('.cards > li'), (c) => getComputedStyle(c).outlineStyle)"
    )
    assert outlines == ["solid"] + ["none"] * (len(outlines) - 1)
    # Keys decide about the marked card even if the focus is elsewhere.
    browser.run("document.activeElement.blur()")
    browser.press("n")
    assert browser.text("#decided").startswith("1 of ")
    assert chosen(browser) == run.order[1]
    leave(browser)


def test_buttons_decide_and_undo(browser, audits):
    _, page = audits["images"]
    browser.open(page)
    assert browser.run("document.getElementById('download').disabled")
    accept = browser.driver.find_element("css selector", "[data-decision=accepted]")
    accept.click()
    assert accept.get_attribute("aria-pressed") == "true"
    assert not browser.run("document.getElementById('download').disabled")
    accept.click()
    assert accept.get_attribute("aria-pressed") == "false"
    assert browser.text("#decided").startswith("0 of ")
    assert browser.run("document.getElementById('download').disabled")


def test_arrows_move_between_rows_of_cards(browser, audits):
    run, page = audits["images"]
    browser.open(page)
    browser.press(Keys.ARROW_DOWN)
    tops = browser.run("Array.from(document.querySelectorAll('#suspects li'), (card) => card.offsetTop)")
    below = tops.index(next(top for top in tops if top > tops[0]))
    assert chosen(browser) == run.audit.order[below]
    browser.press(Keys.ARROW_UP)
    assert chosen(browser) == run.audit.order[0]


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("name", ["images", "rows"])
def test_nothing_is_wider_than_the_screen(browser, audits, name, width):
    browser.open(audits[name][1], width=width)
    assert browser.run("document.documentElement.scrollWidth") <= width
