"""What do pages and their JSON say? Each fact with its place, so that two places that disagree are found."""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from tests.agreement import MARKS, gate_of_page, mark_of_json, mark_of_page, text_of

COMMIT = re.compile(r"/commit/([0-9a-f]{40})")
JOB = re.compile(r"/job/(\d+)$")
FULL = re.compile(r'full result in ([^·<"]+)')
AFTER = re.compile(r" ago and ([^,|]+?) after that")
BY_DAY = "Day (UTC)"
PARTIAL = {
    "Jobs that run longest",
    "Latest attempts",
    "Runs",
}  # tables that list only some of what is counted


class Fact(NamedTuple):
    """Something that is said of something, and where."""

    subject: str
    name: str
    value: str
    where: str


def disagreements(pages):
    """Return what two places say differently: by subject and name the values, each with where it stands."""
    said = defaultdict(lambda: defaultdict(list))
    for page in pages:
        for one in facts(page):
            said[one.subject, one.name][str(one.value)].append(one.where)
    return {
        f"{subject}: {name}": {value: places[:3] for value, places in values.items()}
        for (subject, name), values in said.items()
        if len(values) > 1
    }


def compared(pages):
    """Return how many facts stand in more than one place, by name."""
    places = Counter((one.subject, one.name) for page in pages for one in facts(page))
    return Counter(name for (_, name), count in places.items() if count > 1)


def facts(page):
    """Yield what a page and its JSON say."""
    yield from _totals(page)
    for pattern, read in READERS:
        if found := re.match(pattern + r"(\?.*)?$", page.path):
            yield from (
                one if isinstance(one, Fact) else Fact(*one, page.path)
                for one in read(page, *found.groups()[:-1])
            )


def _totals(page):
    """A tile that has the name of a table's column is its total."""
    for table in page.tables:
        for column in table.columns[1:] if BY_DAY not in table.columns and table.label not in PARTIAL else ():
            total = _number(table.tiles.get(column, ""))
            values = [_number(cell) for cell in table.column(column)] if _is_simple(table) else []
            if total is not None and values and None not in values and total == int(total):
                subject = f"{page.path} {table.label}"
                yield Fact(subject, f"total of {column}", total, "the tile")
                yield Fact(subject, f"total of {column}", sum(values), "the table")


def _is_simple(table):
    return all(len(row) == len(table.columns) for row in table.rows)


def _number(words):
    found = re.fullmatch(r"(-?[\d,]+(?:\.\d+)?)(?: %)?", words)
    return float(found[1].replace(",", "")) if found else None


def _grid(page, repo):
    broken = re.search(r'<section class="broken".*?</section>', page.source, re.DOTALL)
    for item in re.findall(
        r'<li><span class="(?:bad|warn|idle)".*?</li>', broken[0] if broken else "", re.DOTALL
    ):
        name = text_of(re.search(r'<bdi class="name">(.*?)</bdi>', item)[1])
        shas = COMMIT.findall(item)
        yield f"job {name}", "broken since", shas[0]
        yield f"job {name} broken at {shas[0]}", "last good", shas[1]
        yield f"job {name}", "failures in a row", re.search(r"(\d+) failures? in a row", item)[1]
        if "committed" not in item:
            yield f"job {name}", "when it broke", re.search(r"[\w ]+ ago", text_of(item))[0].strip()
    for one in page.json["broken"]:
        yield f"job {one['name']}", "broken since", one["first_bad"]
        yield f"job {one['name']} broken at {one['first_bad']}", "last good", one["last_good"]
        yield f"job {one['name']}", "failures in a row", one["failures"]
    verdicts = [line["verdict"] for line in page.json["lines"]]
    yield f"branch of {repo}", "red commits", verdicts.count("red")
    for line in page.source.split("<tr data-sha=")[1:]:
        if took := FULL.search(line):
            yield f"commit {COMMIT.search(line)[1]}", "full result", took[1].strip()
    for place, column in enumerate(page.json["columns"]):
        cells = [line["cells"].get(str(place), {}).get("c") for line in page.json["lines"]]
        yield f"job {column['name']}", "commits that count", sum(one in set("OFXT") for one in cells if one)


def _metrics(page, repo):
    if not page.tiles:
        return
    yield f"branch of {repo}", "red commits", page.under["Red commits"][0].split()[0]
    yield f"branch of {repo}", "red commits", page.json["whole"]["red"]
    yield f"branch of {repo}", "jobs", page.tiles["Jobs"]
    yield f"branch of {repo}", "jobs", page.json["whole"]["jobs"]
    yield f"branch of {repo}", "jobs", sum(day["jobs"] for day in page.json["days"])
    seconds = page.json["whole"]["job_seconds"]
    yield f"branch of {repo}", "machine seconds", seconds
    yield f"branch of {repo}", "machine seconds", sum(one["job_seconds"] for one in page.json["runners"])
    yield f"branch of {repo}", "machine hours", f"{seconds / 3600:,.0f}"
    yield f"branch of {repo}", "machine hours", page.tiles["Machine hours"]
    if "Flaky" in page.tiles:
        yield f"branch of {repo}", "Flaky", page.tiles["Flaky"]
    kinds = page.table("Why jobs failed")
    yield f"branch of {repo}", "failed", sum(map(int, kinds.column("Runs"))) if kinds else 0
    yield f"branch of {repo}", "failed", sum(page.json["whole"]["failures"].values())
    yield from _reliability_tables(page)
    changes = page.table("Changes")
    newest = {}
    for row, links in changes.named() if changes else ():
        shas = [found[1] for link in links if (found := COMMIT.search(link))]
        newest.setdefault(row["Job"], (row["Became"], shas[0]))
        if len(shas) > 1:
            yield f"job {row['Job']} broken at {shas[0]}", "last good", shas[1]
        if "broken" in row["Became"] and "When" in row:
            yield f"job {row['Job']}", "when it broke", row["When"]
    for one in page.json["changes"]:
        yield f"job {one['name']} broken at {one['first_bad']}", "last good", one["last_good"]
    for name, (became, first) in newest.items():
        if "broken" in became:
            yield f"job {name}", "broken since", first


def _reliability_tables(page):
    for table in page.tables:
        for row, _ in table.named() if "Infrastructure" in table.columns else ():
            for column in table.columns[1:]:
                yield f"job {row['Job']} over 30 days", column, row[column]
            yield f"job {row['Job']}", "commits that count", row.get("Commits", row.get("Runs"))


def _reliability(page, repo):
    yield from _reliability_tables(page)
    (table,) = page.tables or [None]
    if table and "Flaky" in table.columns:
        yield f"branch of {repo}", "Flaky", sum(map(int, table.column("Flaky")))
    for one in page.json["jobs"]:
        subject = f"job {one['name']} over 30 days"
        yield subject, "Broken", one["broken"]
        yield subject, "Flaky", one["flaky"]
        yield subject, "Hours", f"{one['job_seconds'] / 3600:.1f}"


def _failure(page, signature):
    subject = f"failure {signature}"
    found = page.json
    lead = re.search(r'<p class="lead">(.*?)</p>', page.source, re.DOTALL)[1]
    yield subject, "jobs", re.search(r"([\d,]+) jobs?", lead)[1]
    yield subject, "jobs", found["failure"]["jobs_total"]
    for table in page.tables:
        if table.label.startswith("By "):
            yield subject, "jobs", sum(map(int, table.column("Jobs")))
    yield subject, "jobs", len(page.table("Jobs").rows)
    for one in found["began"]:
        yield f"job {one['job']} broken at {one['first_bad']}", "last good", one["last_good"]
    for words, links in page.items:
        shas = [found[1] for link in links if (found := COMMIT.search(link))]
        if ": began " in words:
            name = words.partition(": began ")[0]
            good, bad = shas if "between" in words else reversed(shas)
            yield f"job {name} broken at {bad}", "last good", good


def _failures(page):
    for row, links in page.table("Failures").named() if page.table("Failures") else ():
        yield f"failure {links[0].rpartition('/')[2]}", "kind", row["Kind"]
    for one in page.json["failures"]:
        yield f"failure {one['signature']}", "kind", one["kind"]


def _commit(page, repo, sha):
    span = AFTER.search(text_of(page.source))
    if span and "in the grid of" in page.source:
        yield f"commit {sha}", "full result", span[1]
    own = page.table("Jobs of upstream's own CI") or next(
        (one for one in page.tables if "Job or check" in one.columns), None
    )
    if own:
        of = re.search(r"Upstream's own CI.*?(\d+) of (\d+) passed", text_of(page.source))
        yield f"commit {sha}", "upstream's jobs passed", of[1]
        yield (
            f"commit {sha}",
            "upstream's jobs passed",
            sum("passed" in row["Result"] for row, _ in own.named()),
        )
        yield f"commit {sha}", "upstream's jobs", of[2]
        yield f"commit {sha}", "upstream's jobs", len(own.rows)
    yield from _jobs(page)


def _jobs(page):
    """What a backend reported of a job stands on upstream's pages; GitHub tells whole seconds of it."""
    repo = "/".join(page.path.split("/")[:3])
    for table in page.tables:
        for row, links in table.named():
            link, job = next(((link, found[1]) for link in links if (found := JOB.search(link))), ("", ""))
            told = "" if f"{repo}/" in link else ", as reported"
            for column, name in (("Took", "took"), ("Queued", "queued")):
                if job and row.get(column, "–") not in {"–", ""}:
                    yield f"job {job}", name + told, row[column]


def _job(page, repo, job):
    for name in ("took", "queued"):
        if name in page.tiles:
            yield f"job {job}", name, page.tiles[name]
    found = page.json["job"]
    yield f"job {job}", "conclusion", found["conclusion"]
    if used := re.search(r"CPU (\d+) % avg, memory (\d+) %", text_of(page.source)):
        yield f"utilization of {job}", "cpu avg", used[1]
        yield f"utilization of {job}", "memory max", used[2]


def _run_usage(page, repo, run):
    for one in (page.json or {}).get("jobs", ()):
        subject = f"utilization of {one['job_id']}"
        yield subject, "cpu avg", f"{one['cpu_avg']:.0f}"
        yield subject, "memory max", f"{one['mem_max']:.0f}"
        yield subject, "memory avg", f"{one['mem_avg']:.0f}"
        yield subject, "gpu avg", f"{one['gpu_avg']:.0f}"


def _usage(page, repo, job):
    subject = f"utilization of {job}"
    if "CPU" not in page.tiles:
        return
    yield subject, "cpu avg", page.tiles["CPU"].split()[0]
    yield subject, "memory max", page.tiles["Memory"].split()[0]
    used = next(text for name, text in page.tiles.items() if name in ("NPUs used", "GPUs used"))
    yield subject, "gpu avg", used.split()[0]
    yield subject, "memory avg", re.search(r"avg (\d+) %", " ".join(page.under["Memory"]))[1]
    for table in page.tables:
        for row, _ in table.named() if table.columns[:2] == ["Series", "avg"] else ():
            if row["Series"] in ("cpu", "memory"):
                yield subject, f"{row['Series']} avg", row["avg"].split()[0]


def _usage_report(page, repo):
    if repo != "pytorch/pytorch" or page.under.get("CPU") is None:
        return
    if page.under["CPU"][0].startswith("avg;"):
        yield "utilization of trusted branches", "cpu avg", page.tiles["CPU"].split()[0]


def _backends(page):
    for table in page.tables:
        for row, links in table.named() if "Pass rate" in table.columns else ():
            repo = re.search(r"/oot/([^/?]+/[^/?]+)", " ".join(links))
            subject = f"backend {repo[1]}" if repo else ""
            for column in row.keys() & {"Runs", "Jobs", "Failed", "Timed out"} if repo else ():
                if counted := re.match(r"\d+", row[column]):  # one that only listens has no numbers
                    yield subject, column, counted[0]
            if repo and (rate := re.search(r"[\d.]+ %", row["Pass rate"])):
                yield subject, "pass rate", rate[0]
    for one in page.json["backends"]:
        if one["pass_rate"] is not None:
            yield f"backend {one['repo']}", "pass rate", text_of(_percent(one["pass_rate"]))
            yield f"backend {one['repo']}", "Failed", one["failure"]


def _percent(share):
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _backend(page, repo):
    subject = f"backend {repo}"
    for name in page.tiles.keys() & {"Runs", "Jobs", "Failed", "Timed out"}:
        yield subject, name, page.tiles[name].split()[0]
    if rate := re.search(r"[\d.]+ %", page.tiles["Pass rate"]):
        yield subject, "pass rate", rate[0]
    latest = page.table("Latest jobs") or page.table("Latest attempts")
    if latest and len(latest.rows) < 20:
        rows = [(row["Job"], row["For"]) for row, _ in latest.named()]
        counted = len(set(rows)) if latest.label == "Latest attempts" else len(rows)
        yield subject, "Runs" if "Runs" in page.tiles else "Jobs", counted


def _backend_metrics(page):
    for name, rate, runs in re.findall(
        r"/oot/([^/?\"]+/[^/?\"]+)[^>]*>.*?([\d.]+ %), (\d+) (?:runs?|jobs?)", page.source
    ):
        yield f"backend {html.unescape(name)}", "pass rate", rate
        yield f"backend {html.unescape(name)}", "Jobs", runs


def _tests_of(page, *_):
    tables = [one for one in page.tables if one.columns[:3] == ["Job", "Tests", "Passed"]]
    if len(tables) == 1 and "Tests" in page.tiles:
        for name in ("Tests", "Passed", "Failed", "Skipped"):
            yield page.path, f"{name} of its jobs", page.tiles[name].split()[0]
            yield page.path, f"{name} of its jobs", sum(map(int, tables[0].column(name)))


def _pull(page, repo, number):
    subject, gate = f"pull {repo}#{number}", page.json["gate"]
    yield subject, "gate", gate_of_page(page.source)
    yield subject, "gate", gate and (gate["state"], gate["sentence"])
    yield subject, "mark", mark_of_page(page.source)
    yield subject, "mark", MARKS[mark_of_json(page.json)]


READERS = (
    (r"/([^/]+/[^/]+)/pull/(\d+)", _pull),
    (r"/hud/([^/]+/[^/]+)/main", _grid),
    (r"/([^/]+/[^/]+)/metrics", _metrics),
    (r"/([^/]+/[^/]+)/reliability", _reliability),
    (r"/failures/([0-9a-f]{64})", _failure),
    (r"/failures", _failures),
    (r"/([^/]+/[^/]+)/commit/([0-9a-f]{40})", _commit),
    (r"/([^/]+/[^/]+)/run/(\d+)", lambda page, *_: _jobs(page)),
    (r"/([^/]+/[^/]+)/job/(\d+)", _job),
    (r"/([^/]+/[^/]+)/job/(\d+)/utilization", _usage),
    (r"/([^/]+/[^/]+)/run/(\d+)/utilization", _run_usage),
    (r"/([^/]+/[^/]+)/utilization", _usage_report),
    (r"/oot", _backends),
    (r"/oot/metrics", _backend_metrics),
    (r"/oot/([^/]+/[^/]+)", _backend),
    (r"/([^/]+/[^/]+)/(run|commit)/(\w+)/tests", _tests_of),
)
