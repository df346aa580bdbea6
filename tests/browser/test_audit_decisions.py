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
    file, end = folder / "decisions.csv", time.monotonic() + 10
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
    browser.press(Keys.ARROW_RIGHT)
    assert chosen(browser) == order[0]
    browser.press("y", "n", Keys.ARROW_RIGHT, "Y")
    assert chosen(browser) == order[4]
    assert browser.text("#decided").startswith("3 of ")
    assert browser.text("#decided").endswith("2 accepted")
    browser.press("y", Keys.ARROW_LEFT, "u")
    assert chosen(browser) == order[4]
    file = downloaded(browser, downloads)
    with file.open(newline="") as stream:
        rows = {row["sample"]: row["decision"] for row in csv.DictReader(stream)}
    names = [run.names[place] for place in order]
    assert rows == {names[0]: "accepted", names[1]: "rejected", names[3]: "accepted"}
    accepted = {name: row for name, row in read_decisions(file).items() if row.decision == "accepted"}
    assert set(accepted) == {names[0], names[3]}
    assert accepted[names[0]].given == run.audit.given[order[0]]
    leave(browser)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("blob:")] == []


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
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
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
