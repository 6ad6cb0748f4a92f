"""The page in a real browser: Chromium without a screen, driven by its own driver."""

import json
import shutil

import numpy as np
import pytest
from report_runs import ALL, completed, failed, layers, random_evaluations, write_run

from sparsemod.candidate import Constraints
from sparsemod.measure.targets import TARGETS, limits
from sparsemod.pareto import pareto_mask
from sparsemod.report.page import render_page
from sparsemod.report.run_data import read_run

webdriver = pytest.importorskip("selenium.webdriver")
pytest.importorskip("jinja2")

EVIL = "<script>document.title='pwned'</script></script><!--<img src=x onerror=document.title='pwned'>"


@pytest.fixture(scope="module")
def chromium():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with chromedriver here: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 60 arms and its page."""
    root = tmp_path_factory.mktemp("run")
    write_run(root, random_evaluations(60))
    return read_run(root), saved(root)


def saved(root):
    path = root / "report.html"
    path.write_text(render_page(read_run(root)), encoding="utf-8")
    return path.as_uri()


def emulate(chromium, width=1300, theme="light"):
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def open_page(chromium, address, **how):
    emulate(chromium, **how)
    chromium.get_log("browser")
    chromium.get_log("performance")
    chromium.get(address)
    assert js(chromium, "return document.documentElement.dataset.ready") == "true", chromium.get_log(
        "browser"
    )
    return chromium


@pytest.fixture
def page(chromium, run):
    return open_page(chromium, run[1])


def js(chromium, script, *arguments):
    return chromium.execute_script(script, *arguments)


def text(chromium, selector):
    return js(chromium, "return document.querySelector(arguments[0]).textContent", selector)


def choose(chromium, name, value):
    """Choose a value of a select element."""
    select = chromium.find_element("id", name)
    js(
        chromium,
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
        select,
        value,
    )


def shown_front(chromium):
    points = "document.querySelectorAll('#front-chart .on-front')"
    return set(js(chromium, f"return Array.from({points}, (p) => p.dataset.arm)"))


def type_limit(chromium, metric, value):
    field = chromium.find_element("id", f"limit-{metric}")
    field.clear()
    field.send_keys(value)


def front_by_python(run, constraints):
    arms = [a for a in run.completed if constraints.violation(a.evaluation.resources) is None]
    if not arms:
        return set()
    mask = pareto_mask(np.array([[a.evaluation.objective(o) for o in run.objectives] for a in arms]))
    return {a.name for a, on in zip(arms, mask, strict=True) if on}


def move_to(chromium, arm):
    """Move the pointer onto a point of the plot and return its place in the window."""
    js(
        chromium,
        "document.querySelector('#front-chart').scrollIntoView({block: 'center', behavior: 'instant'})",
    )
    box = js(
        chromium,
        "const point = document.querySelector(`#front-chart [data-arm='${arguments[0]}']`);"
        "const b = point.getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + b.height / 2]",
        arm,
    )
    chromium.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": box[0], "y": box[1]})
    return box


def press(chromium, *keys):
    webdriver.ActionChains(chromium).send_keys(*keys).perform()


KEYS = webdriver.Keys


def active_arm(chromium):
    return js(chromium, "return document.activeElement.dataset.arm ?? null")


def lonely(run):
    """The arm of the front with the least error whose point no other one covers."""
    arms = [a for a in run.completed if a.name in run.front]
    places = [(a.evaluation.objective("model_size"), a.evaluation.error) for a in run.completed]
    return min(
        (a for a in arms if places.count((a.evaluation.objective("model_size"), a.evaluation.error)) == 1),
        key=lambda a: a.evaluation.error,
    )


def test_it_opens_without_an_error_and_asks_nobody(page, run):
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} == {run[1]}
    assert js(page, "return performance.getEntriesByType('resource').length") == 0
    assert shown_front(page) == set(run[0].front)


def test_a_script_that_is_not_ours_does_not_run(page):
    js(
        page,
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s)",
    )
    assert js(page, "return window.ran ?? null") is None
    page.get_log("browser")


def test_hovering_shows_the_arm(page, run):
    arm = lonely(run[0])
    assert not page.find_element("id", "tip").is_displayed()
    move_to(page, arm.name)
    shown = text(page, "#tip")
    assert shown.startswith(f"Arm {arm.name}")
    assert f"Error{100 * arm.evaluation.error:.3g} %" in shown
    assert f"Latency{1000 * arm.evaluation.resources.latency_seconds:.3g} ms" in shown
    assert arm.candidate.origin in shown
    page.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 2, "y": 2})
    assert not page.find_element("id", "tip").is_displayed()


def test_a_click_opens_the_layers_and_parameters(page, run):
    arm = lonely(run[0])
    x, y = move_to(page, arm.name)
    for kind in ("mousePressed", "mouseReleased"):
        event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        page.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    assert text(page, "#details-title") == f"Arm {arm.name}"
    rows = js(page, "return Array.from(document.querySelectorAll('.layers tbody tr'), (r) => r.innerText)")
    table = layers(arm.evaluation.resources.model_size_bytes, arm.evaluation.resources.latency_seconds)
    assert len(rows) == len(table) == 2
    for row, words in zip(
        rows, (("conv 2d + relu", "features.0", "8×3×3×1"), ("fully connected", "10×288")), strict=True
    ):
        assert all(word in row for word in words)
    assert "5\u202f472" in text(page, ".layers tfoot")  # 2592 + 2880 MACs
    listed = text(page, ".parameters")
    assert all(name in listed for name in arm.candidate.parametrization)


def test_an_arm_without_layers_says_why(page, run):
    dominated = next(a for a in run[0].completed if a.name not in run[0].front)
    js(page, "update({selected: arguments[0]})", dominated.name)
    assert "Layers are kept for the arms on the front of the run only." in text(page, "#details")
    broken = next(a for a in run[0].arms if a.status == "failed")
    js(page, "update({selected: arguments[0]})", broken.name)
    assert broken.evaluation.reason in text(page, "#details")


@pytest.mark.parametrize(
    "typed",
    [
        {"model_size": "1.024"},
        {"working_memory": "1.5"},
        {"latency": "12"},
        {"model_size": "8.192", "working_memory": "2.048", "latency": "20"},
        {"model_size": "0.01"},
    ],
)
def test_limits_leave_exactly_the_front_of_what_fits(page, run, typed):
    factor = {"model_size": 1000, "working_memory": 1000, "latency": 0.001}
    for metric, value in typed.items():
        type_limit(page, metric, value)
    constraints = Constraints(**{m: round(float(v) * factor[m], 9) for m, v in typed.items()})
    expected = front_by_python(run[0], constraints)
    assert shown_front(page) == expected
    n_fit = sum(constraints.violation(a.evaluation.resources) is None for a in run[0].completed)
    said = f"{n_fit} of {len(run[0].completed)} arms fit, {len(expected)} of them on the front"
    assert text(page, "#filter-result") == said
    listed = js(
        page, "return Array.from(document.querySelectorAll('#arms-body [data-arm]'), (b) => b.dataset.arm)"
    )
    assert set(listed) == expected
    page.find_element("id", "reset").click()
    assert shown_front(page) == set(run[0].front)
    assert page.get_log("browser") == []


def test_a_board_sets_the_limits_that_it_leaves(page, run):
    choose(page, "board", "board:STM32F103")
    left = limits(TARGETS["STM32F103"], "c")
    fields = [page.find_element("id", f"limit-{m}").get_property("value") for m in ALL[1:]]
    assert fields == [str(left.model_size / 1000), str(left.working_memory / 1000), ""]
    assert shown_front(page) == front_by_python(run[0], left)


@pytest.mark.parametrize("objectives", [("error",), ("error", "model_size")])
def test_the_front_is_that_of_the_runs_objectives(chromium, tmp_path, objectives):
    write_run(
        tmp_path, random_evaluations(40, seed=3), objectives=objectives, limits={"working_memory": 3000}
    )
    page = open_page(chromium, saved(tmp_path))
    data = read_run(tmp_path)
    assert shown_front(page) == set(data.front) == front_by_python(data, Constraints(working_memory=3000))
    type_limit(page, "model_size", "4")
    assert shown_front(page) == front_by_python(data, Constraints(4000, 3000))
    assert page.get_log("browser") == []


def test_the_axes_can_be_chosen(page):
    for axis, metric, label in (
        ("x", "latency", "latency of an inference"),
        ("y", "working_memory", "RAM of"),
    ):
        choose(page, f"axis-{axis}", metric)
        page.find_element("id", f"log-{axis}").click()
        assert label in text(page, "#front-chart")
    assert page.get_log("browser") == []


def test_the_keyboard_reaches_every_arm_of_the_front(page, run):
    js(page, "document.getElementById('front-only').focus()")
    press(page, KEYS.TAB)
    front = set(run[0].front)
    assert active_arm(page) in front
    press(page, KEYS.HOME)
    reached = [active_arm(page)]
    for _ in range(len(front) - 1):
        press(page, KEYS.ARROW_RIGHT)
        reached.append(active_arm(page))
    assert set(reached) == front
    sizes = {a.name: a.evaluation.resources.model_size_bytes for a in run[0].completed}
    assert [sizes[a] for a in reached] == sorted(sizes[a] for a in front)
    press(page, KEYS.ARROW_RIGHT)
    assert active_arm(page) == reached[-1]
    press(page, KEYS.ARROW_LEFT)
    assert active_arm(page) == reached[-2]
    assert f"Arm {reached[-2]}" in text(page, "#tip")
    label = js(page, "return document.activeElement.getAttribute('aria-label')")
    assert label.startswith(f"Arm {reached[-2]}, ")
    assert "on the front. Error " in label
    assert js(page, "return document.activeElement.matches(':focus-visible')")
    assert js(page, "return getComputedStyle(document.activeElement).strokeWidth") == "2.4px"


def test_enter_opens_and_escape_comes_back(page):
    js(page, "document.querySelector('#front-chart [tabindex=\"0\"]').focus()")
    press(page, KEYS.END)
    arm = active_arm(page)
    press(page, KEYS.ENTER)
    assert text(page, "#details-title") == f"Arm {arm}"
    assert js(page, "return document.activeElement.id") == "details-title"
    press(page, KEYS.ESCAPE)
    assert active_arm(page) == arm


def test_every_control_has_a_name_and_can_be_reached(page):
    nameless = js(
        page,
        "const all = 'button, select, input, [role=region], [role=img], [role=group]';"
        "return Array.from(document.querySelectorAll(all))"
        ".filter((n) => !(n.labels?.length || n.textContent.trim() || n.getAttribute('aria-label')"
        " || n.getAttribute('aria-labelledby'))).map((n) => n.outerHTML)",
    )
    assert nameless == []


CONTRAST = """
const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => {
  const [dark, bright] = [light(a), light(b)].sort((p, q) => p - q);
  return (bright + 0.05) / (dark + 0.05);
};
const card = getComputedStyle(document.querySelector('.card')).backgroundColor;
return ['body', '.hint', '.arms .link', '.tile span', '.lead', '.facts dt', '#details-title']
  .map((s) => ratio(getComputedStyle(document.querySelector(s)).color, card));
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_follow_the_system_and_the_button(chromium, run, theme):
    page = open_page(chromium, run[1], theme=theme)
    light = (
        js(page, "return getComputedStyle(document.querySelector('.card')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert light == (theme == "light")
    assert min(js(page, CONTRAST)) >= 4.5
    button = page.find_element("id", "theme")
    seen = []
    for _ in range(3):
        button.click()
        background = js(page, "return getComputedStyle(document.querySelector('.card')).backgroundColor")
        seen.append((button.text, background == "rgb(255, 255, 255)"))
    assert seen == [("Theme: light", True), ("Theme: dark", False), ("Theme: system", theme == "light")]


@pytest.mark.parametrize("width", [360, 800])
def test_nothing_sticks_out_of_a_narrow_window(chromium, run, width):
    page = open_page(chromium, run[1], width=width)
    assert js(page, "return document.documentElement.scrollWidth") <= width
    assert (
        js(page, "return document.querySelector('#front-chart svg').getBoundingClientRect().width") <= width
    )


def test_the_table_is_sorted_by_its_headers(page, run):
    choose(page, "arms-filter", "all")
    header = page.find_element("xpath", "//tr[@id='arms-head']/th[.='Flash']")
    names = "return Array.from(document.querySelectorAll('#arms-body [data-arm]'), (b) => b.dataset.arm)"
    sizes = {a.name: a.evaluation.resources.model_size_bytes for a in run[0].completed}
    rest = [a.name for a in run[0].arms if a.name not in sizes]
    for order, sign in (("ascending", 1), ("descending", -1)):
        js(page, "arguments[0].querySelector('button').click()", header)
        assert header.get_attribute("aria-sort") == order
        expected = sorted(sizes, key=lambda a: (sign * sizes[a], int(a.split("_")[0])))
        assert js(page, names) == expected + rest  # what has no value comes last either way


def test_parallel_coordinates_show_what_is_asked_for(page, run):
    drawn = "return document.querySelectorAll('#parallel-chart .axis').length"
    assert js(page, drawn) == 4 + 4
    boxes = page.find_elements("css selector", "#parallel-axes input")
    assert len(boxes) == len(run[0].parameters)
    js(page, "arguments[0].click()", boxes[-1])
    assert js(page, drawn) == 4 + 5
    assert js(page, "return document.querySelectorAll('#parallel-chart .line').length") == len(
        run[0].completed
    )
    assert page.get_log("browser") == []


def test_markup_in_the_results_stays_text(chromium, tmp_path):
    write_run(tmp_path, [completed(), failed(EVIL)], origin=EVIL, record={"target": EVIL, "recipe": EVIL})
    page = open_page(chromium, saved(tmp_path))
    for arm in ("0_0", "1_0"):
        js(page, "update({selected: arguments[0]})", arm)
        assert EVIL in text(page, "#details")
    move_to(page, "0_0")
    assert EVIL in text(page, "#tip")
    assert EVIL in text(page, "#failures")
    assert page.title == "made – sparsemod report"
    assert page.find_elements("css selector", "img") == []
    assert page.get_log("browser") == []


@pytest.mark.parametrize(
    "evaluations",
    [
        [],
        [None],
        [failed(), failed()],
        [completed()],
        [completed(0.0, 0, 0, 0.0)],
        [completed(float("nan")), None, failed()],
    ],
    ids=["none", "pending", "failed", "one", "zeros", "nan"],
)
def test_little_to_show_is_shown_without_an_error(chromium, tmp_path, evaluations):
    write_run(tmp_path, evaluations, objectives=("error",))
    page = open_page(chromium, saved(tmp_path))
    assert page.get_log("browser") == []
    data = read_run(tmp_path)
    assert shown_front(page) == set(data.front)
    assert page.find_element("id", "front").is_displayed() == bool(data.completed)
    assert page.find_element("id", "progress").is_displayed() == bool(data.evaluated)
    assert js(page, "return document.body.innerHTML.includes('NaN')") is False


def test_300_arms_of_60_parameters_are_all_drawn(chromium, tmp_path):
    write_run(tmp_path, random_evaluations(300, seed=2), n_widths=60)
    page = open_page(chromium, saved(tmp_path))
    n = len(read_run(tmp_path).completed)
    assert js(page, "return document.querySelectorAll('#front-chart .point').length") == n
    assert js(page, "return document.querySelectorAll('#parallel-chart .line').length") == n
    assert page.get_log("browser") == []
