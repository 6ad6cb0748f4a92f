"""The page of a run of 300 arms and 60 parameters: how large it is and how soon Chromium has drawn it.

    python benchmarks/report_page.py [--arms 300] [--runs 5]

Everything is made up by the helpers of the tests, so nothing is trained. Times are the browser's own: from
the start of the navigation to the end of the first drawing, the median of the runs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "report")]

from report_runs import random_evaluations, write_run  # noqa: E402

from sparsemod.report.page import render_page  # noqa: E402
from sparsemod.report.run_data import read_run  # noqa: E402

DRAWN = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
UPDATE = (
    "const start = performance.now(); update({limits: {...state.limits, model_size: 8000}});"
    "document.body.getBoundingClientRect(); return performance.now() - start"
)


def opened(page: Path, n_runs: int) -> tuple[float, float]:
    """Return the milliseconds of opening the page and of moving a filter."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    loads, updates = [], []
    try:
        for _ in range(n_runs):
            browser.get(page.as_uri())
            loads.append(browser.execute_script(DRAWN))
            updates.append(browser.execute_script(UPDATE))
    finally:
        browser.quit()
    return statistics.median(loads), statistics.median(updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_run(folder, random_evaluations(arguments.arms), n_widths=56)
        start = time.perf_counter()
        text = render_page(read_run(folder))
        seconds = time.perf_counter() - start
        page = Path(folder) / "report.html"
        page.write_text(text, encoding="utf-8")
        print(f"{arguments.arms} arms: {page.stat().st_size / 1e6:.2f} MB, made in {seconds:.2f} s")
        if shutil.which("chromedriver") is None:
            print("no chromedriver here: the times in a browser are left out")
            return
        load, update = opened(page, arguments.runs)
        print(f"drawn after {load:.0f} ms, a filter moves the front in {update:.0f} ms")


if __name__ == "__main__":
    main()
