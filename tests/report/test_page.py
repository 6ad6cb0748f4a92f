"""The page as a file: what is in it, what is escaped, how large it is."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest
from report_runs import completed, failed, random_evaluations, write_run

from sparsemod.errors import ConfigError
from sparsemod.report.page import render_page
from sparsemod.report.run_data import read_run

pytest.importorskip("jinja2")

EVIL = "<script>document.title='pwned'</script></script><!--<img src=x onerror=alert(1)>'\"&\u2028"


class Page(HTMLParser):
    """The elements of a page and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], [], []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text.append(data)


def page_of(root, evaluations, **how):
    write_run(root, evaluations, **how)
    text = render_page(read_run(root))
    return text, Page(text)


def test_the_page_refers_to_nothing_outside_of_it(tmp_path):
    text, page = page_of(tmp_path, random_evaluations(20))
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form[action]"}
        for name in ("src", "href", "action", "style"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
        assert not [a for a in attributes if a.startswith("on")]
    assert re.findall(r"https?://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"]
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_text_of_the_results_is_never_markup(tmp_path):
    _, page = page_of(
        tmp_path,
        [completed(), failed(EVIL)],
        origin=EVIL,
        record={
            "target": EVIL,
            "recipe": EVIL,
            "versions": {EVIL: EVIL},
            "configuration": {"runtime": EVIL, EVIL: EVIL},
        },
    )
    assert len(page.scripts) == 2  # the data and our own
    assert not [tag for tag, _ in page.elements if tag == "img"]
    data = json.loads(page.scripts[0])
    assert (data["target"], data["runtime"]) == (EVIL, "c")
    assert data["arms"][1]["reason"] == EVIL
    assert data["arms"][0]["origin"] == EVIL
    assert not re.search("[<>&']", page.scripts[0])
    assert "".join(page.text).count(EVIL) >= 5


def test_the_data_of_the_page_are_those_of_the_run(tmp_path):
    evaluations = [
        completed(0.1, 500, 64, 0.002, test_error=0.2),
        failed("too wide"),
        None,
        completed(float("nan")),
    ]
    _, page = page_of(tmp_path, evaluations, limits={"latency": 0.5})
    data = json.loads(page.scripts[0])
    assert [a["status"] for a in data["arms"]] == ["completed", "failed", "pending", "completed"]
    first = data["arms"][0]
    assert first["values"] == {"error": 0.1, "model_size": 500, "working_memory": 64, "latency": 0.002}
    assert (first["testError"], first["front"], first["parameters"]["batch_size"]) == (0.2, True, 32)
    assert data["arms"][3]["values"]["error"] is None
    assert data["limits"] == {"model_size": None, "working_memory": None, "latency": 0.5}
    assert [layer["weightBytes"] for layer in data["layers"]["0_0"]] == [125, 375]
    assert len(data["hypervolume"]) == 3
    boards = {b["name"]: b for b in data["boards"]}
    assert boards["STM32F103"]["model_size"] == 57_536
    assert "generic" not in boards


def test_failures_are_grouped_by_reason_most_frequent_first(tmp_path):
    text, _ = page_of(tmp_path, [failed("rare"), failed("often"), failed("often"), failed("")])
    rows = re.findall(r'<td class="number">(\d+)</td><td class="reason">(.*?)</td><td>(.*?)</td>', text)
    assert rows[0] == ("2", "often", "1_0, 2_0")
    assert set(rows[1:]) == {("1", "rare", "0_0"), ("1", "no reason was recorded", "3_0")}


@pytest.mark.parametrize(
    ("evaluations", "words"),
    [
        ([], "This run has no arms yet."),
        ([None, None], "No arm has been evaluated yet; 2 are proposed."),
        ([failed(), failed()], "No arm was completed: 2 of 2 evaluated arms failed."),
    ],
)
def test_the_page_says_what_there_is(tmp_path, evaluations, words):
    _, page = page_of(tmp_path, evaluations)
    assert words in " ".join("".join(page.text).split())


def test_without_run_json_the_page_says_so(tmp_path):
    _, page = page_of(tmp_path, [completed()], record=False)
    assert "This folder has no run.json" in "".join(page.text)


def test_the_page_of_300_arms_is_below_5_mb(tmp_path):
    text, _ = page_of(tmp_path, random_evaluations(300), n_widths=60)
    assert len(text.encode()) < 5_000_000


def test_without_jinja2_one_line_names_the_extra(tmp_path, monkeypatch):
    write_run(tmp_path, [completed()])
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparsemod\[report\]'"):
        render_page(read_run(tmp_path))


def test_the_same_run_gives_the_same_page(tmp_path):
    write_run(tmp_path, random_evaluations(30))
    assert render_page(read_run(tmp_path)) == render_page(read_run(tmp_path))
