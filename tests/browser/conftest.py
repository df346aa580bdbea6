"""A headless Chromium, and the pages it opens."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from trained_runs import HOSTILE, image_set, row_set, train_run

from deeplda.report.record import read_record
from deeplda.report.report_files import write_comparison, write_report

HUNDRED = tuple(f"species {i:03}" for i in range(100))
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A browser that records the requests and console messages of pages."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, page, *, width=1200, height=900, dark=False):
        """Open a page in the given size and colour scheme, and wait until it is drawn."""
        self.requests(), self.complaints()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(page.as_uri())
        self.settle()
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def settle(self):
        """Wait until pending changes are drawn."""
        wait = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        self.driver.execute_async_script(wait)

    def text(self, selector):
        return self.run("document.querySelector(arguments[0]).textContent", selector)

    def press(self, *keys):
        """Press keys on the focused element."""
        actions = webdriver.ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()
        self.settle()

    def focus(self, selector):
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def requests(self):
        """Return the URLs requested since the last call, other than the page itself and data URIs."""
        messages = [json.loads(row["message"])["message"] for row in self.driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:") and not url.endswith(".html")]

    def complaints(self):
        """Return the console messages since the last call."""
        return [row["message"] for row in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    binaries = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, found in binaries.items() if found is None]
    if missing:
        pytest.fail(f"{' and '.join(missing)} not found: apt-get install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = binaries["chromium"]
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(binaries["chromedriver"]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Write reports of small runs: images, 10,000 images, rows, 100 classes, hostile names, and comparisons."""
    home = tmp_path_factory.mktemp("pages")
    names = tuple(f"class {i}" for i in range(10))
    images = image_set(home / "images.npz", names, train=30, test=12)
    many = image_set(home / "many.npz", names, train=30, test=1_000, side=32)
    runs = {
        "images": train_run(home / "images", images),
        "cce": train_run(home / "cce", images, objective="cce"),
        "many": train_run(home / "many", many, epochs=1, width=0.1),
        "rows": train_run(home / "rows", row_set(home / "rows.npz", ("no", "yes"))),
        "hundred": train_run(
            home / "hundred", row_set(home / "hundred.npz", HUNDRED, train=10, test=5), objective="cce"
        ),
        "hostile": train_run(home / "hostile", image_set(home / "hostile.npz", HOSTILE)),
    }
    written = {name: write_report(run) for name, run in runs.items()}
    records = [read_record(runs["images"]), read_record(runs["cce"])]
    written["comparison"] = write_comparison("Comparison", records, home / "comparison.html")
    return written | {"sweep": write_comparison("Sweep", _copies(runs["images"], home), home / "sweep.html")}


def _copies(run, home):
    """Return the records of 26 copies of a run, which claim to be of 13 configurations with two seeds each."""
    found = []
    for place in range(26):
        settings = {"alpha": place // 2 / 16, "learning_rate": 0.1234 / (1 + place // 2), "seed": place % 2}
        folder = home / f"lda-alpha{settings['alpha']:g}-learning_rate{settings['learning_rate']:.6f}-seed{place % 2}"
        shutil.copytree(run, folder)
        record = read_record(folder)
        found.append(replace(record, config=record.config.model_copy(update=settings)))
    return found
