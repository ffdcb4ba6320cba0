# SPDX-License-Identifier: Apache-2.0
"""The report of `tests/bench`: medians with their spread, and Markdown."""

import pathlib
import statistics

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
# figures that are not medians but the case itself
CASE = {"subscribers", "held_ms", "packet_bytes", "pipes", "subports", "qsize", "case", "version", "keys", "plan_bps",
        "waiting_each", "port_bps", "huge_pages"}
STAGES = ("rx", "parse", "classify", "ring", "enqueue", "dequeue", "tx", "other")
MILLION = 1_000_000


def median(values):
    return statistics.median(values) if values else None


def spread_of(values):
    return {"median": round(median(values), 4), "least": round(min(values), 4), "most": round(max(values), 4), "runs": len(values)}


def spread(runs):
    """Several runs of one case as one row."""
    row = {}
    for key, value in runs[0].items():
        of = [run[key] for run in runs if run.get(key) is not None]
        if key in CASE or isinstance(value, (str, bool)):
            row[key] = value
        elif isinstance(value, dict):
            row[key] = {part: round(median([run[part] for run in of if isinstance(run.get(part), (int, float))] or [0]), 2)
                        for part in value}
        elif isinstance(value, (int, float)):
            row[key] = spread_of(of)
    return row


# -- reading ---------------------------------------------------------------------------------------------------------

def of(row, key):
    """A figure's median."""
    value = (row or {}).get(key)
    return value.get("median") if isinstance(value, dict) else value


def number(value, digits=1):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def with_spread(row, key, digits=1):
    value = (row or {}).get(key)
    if not isinstance(value, dict):
        return number(value, digits)
    return f"{number(float(value['median']), digits)} ({number(float(value['least']), digits)}-{number(float(value['most']), digits)})"


def table(head, rows, left=1):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] * left + ["---:"] * (len(head) - left)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


class Report:
    def __init__(self, figures):
        self.figures = figures
        self.beside = figures.get("beside", {})

    def engine(self, subscribers, held_ms, packet_bytes=64):
        rows = self.figures.get("engine", [])
        return next((row for row in rows if row["subscribers"] == subscribers and row["held_ms"] == held_ms
                     and row["packet_bytes"] == packet_bytes), None)

    def ratio(self, theirs, key, ours, our_key="engine_ns_per_packet"):
        above, below = of(self.beside.get(theirs), key), of(ours, our_key)
        return above / below if above and below else None

    def mpps(self, row):
        ns = of(row, "ns_per_packet")
        return 1e3 / ns if ns else None

    # -- what must be reached ----------------------------------------------------------------------------------------

    def musts(self):
        one = lambda name: self.figures.get(name) or {}
        held = {n: self.engine(n, 2) for n in (1_000, 65_536, MILLION, 4 * MILLION)}
        conforming = {n: self.engine(n, 0) for n in held}
        growth = None
        if of(held[1_000], "ns_per_packet") and of(held[4 * MILLION], "ns_per_packet"):
            growth = of(held[4 * MILLION], "ns_per_packet") / of(held[1_000], "ns_per_packet")
        memory = one("memory").get("bytes_per_subscriber")
        active = one("pi").get("active_us")
        shards = lambda crossing: next((of(row, "times") for row in self.figures.get("shards") or []
                                        if row["subscribers"] == MILLION and row["crossing"] == crossing), None)
        many = self.beside.get("backlog-8192-1500")
        changes, overload, flood, churn = one("changes"), one("overload"), one("flood"), one("churn")
        part = lambda of, above, below: of[above] / of[below] if of.get(above) and of.get(below) else None
        # what, found, must, aim, unit, more is better
        rows = [
            ("1 M subscribers, conforming", self.mpps(conforming[MILLION]), 13, 20, "Mpps", True),
            ("1 M, held 2 ms", self.mpps(held[MILLION]), 7, 11, "Mpps", True),
            ("4 M, held 2 ms", self.mpps(held[4 * MILLION]), 5.5, 9, "Mpps", True),
            ("enqueue to dequeue at 1 M held, rte_sched with 1 M pipes, 30 k waiting",
             self.ratio("rte_sched-1048576-backlog:30000", "ns_per_packet", held[MILLION]), 3, 5, "times", True),
            ("the same, nothing waiting", self.ratio("rte_sched-1048576-open", "ns_per_packet", conforming[MILLION]), 3, 5, "times", True),
            ("64 k against 64 k pipes, 30 k waiting",
             self.ratio("rte_sched-65536-backlog:30000", "ns_per_packet", held[65_536]), 1.5, 2.5, "times", True),
            ("the same, nothing waiting", self.ratio("rte_sched-65536-open", "ns_per_packet", conforming[65_536]), 1.5, 2.5, "times", True),
            ("8,192 backlogged at 1 Mb/s, 1500 bytes: all of rte_sched's core",
             self.ratio("rte_sched-8192-plan:1000000:1500:8", "polling_ns_per_packet", many), 10, 20, "times", True),
            ("the same: only its calls that gave packets",
             self.ratio("rte_sched-8192-plan:1000000:1500:8", "ns_per_packet", many), None, None, "times", True),
            ("cost a packet, 4 M against 1 k, held 2 ms", growth, 2.5, 2, "times", False),
            ("memory a subscriber, the contract's record", memory, 1280, 768, "B", False),
            ("PI pass over 1 M active ids", active / 1e3 if active else None, 1, 0.5, "ms", False),
            ("PI pass over 1 M idle ids", one("pi").get("idle_us"), None, None, "us", False),
            ("two shards on two cores against one, each fed on its core", shards(False), 1.8, 1.95, "times", True),
            ("the same, half of the packets from the other core", shards(True), None, None, "times", True),
            ("lateness at half load, p99", one("lateness").get("p99_us"), 20, 5, "us", False),
            ("packets lost to changes under full load", changes.get("lost"), 0, 0, "packets", False),
            ("longest loop with changes, median of spans", changes.get("longest_loop_us"), 100, 100, "us", False),
            ("overload: sent, of what the port carries", part(overload, "sent_mpps", "port_mpps"), 0.98, 0.99, "times", True),
            ("overload: Jain's index over shares by plan", overload.get("jain"), 0.98, 0.98, "", True),
            ("overload: sparse subscribers' delay, p99", overload.get("sparse_p99_us"), 2000, 2000, "us", False),
            ("flood: packets that the others lost", flood.get("others_lost"), 0, 0, "packets", False),
            ("flood: the others' delay p99, of that without", part(flood, "flood_p99_us", "calm_p99_us"), 1.2, 1.2, "times", False),
            ("churn: packets that the others lost", churn.get("lost"), 0, 0, "packets", False),
            ("churn: memory grown after a tenth of the run", churn["grown_bytes"] / 1e6 if churn else None, 8, 0, "MB", False),
        ]
        limit = lambda value: "-" if value is None else f"{value:g}"
        lines = []
        for what, found, must, aim, unit, more in rows:
            met = "-"
            if found is not None and must is not None:
                good = (lambda limit: found >= limit) if more else (lambda limit: found <= limit)
                met = "aim" if good(aim) else "yes" if good(must) else "**no**"
            lines.append((what, f"{number(found, 2)} {unit}" if found is not None else "-", limit(must), limit(aim), met))
        return table(("case", "measured", "must", "aim", "met"), lines)

    # -- tables ------------------------------------------------------------------------------------------------------

    def throughput(self):
        lines = []
        for row in self.figures.get("engine", []):
            size = {362: "IMIX"}.get(row["packet_bytes"], f"{row['packet_bytes']} B")
            lines.append((f"{row['subscribers']:,}", "conforming" if row["held_ms"] == 0 else f"held {of(row, 'held_ms_measured'):.1f} ms",
                          size, number(self.mpps(row), 2), with_spread(row, "ns_per_packet"), with_spread(row, "engine_ns_per_packet"),
                          with_spread(row, "mpps", 2), number(of(row, "bytes_per_subscriber"), 0), number(of(row, "lost_percent")),
                          "yes" if row.get("huge_pages") else "no"))
        return table(("subscribers", "traffic", "frames", "Mpps of a whole lcore", "busy ns/packet", "of it engine", "Mpps seen",
                      "B/subscriber", "lost %", "huge pages"), lines, 3)

    def stages(self):
        lines = [(f"{row['subscribers']:,}, {'conforming' if row['held_ms'] == 0 else 'held 2 ms'}, {row['packet_bytes']} B",
                  *(number(row["stages_ns"].get(stage), 1) for stage in STAGES), number(sum(row["stages_ns"].values()), 1))
                 for row in self.figures.get("engine", [])]
        return table(("ns a packet", *STAGES, "sum"), lines)

    def peers(self):
        lines = []
        for name, row in sorted(self.beside.items()):
            what = f"{row.get('ns_per_packet') and with_spread(row, 'ns_per_packet')}"
            if name.startswith("rte_sched"):
                label = (f"rte_sched, {row['pipes']:,} pipes in {row['subports']} subports, queues of {row['qsize']}, best effort only, "
                         f"{row['case']}, {row['packet_bytes']} B")
                extra = f"all its time {with_spread(row, 'polling_ns_per_packet')}; {with_spread(row, 'mpps', 3)} Mpps; {number(of(row, 'waiting'), 0)} waiting"
            elif name.startswith("backlog"):
                label = f"sluice, {row['subscribers']:,} subscribers, {row['waiting_each']} packets each at {row['plan_bps']:,} b/s, {row['packet_bytes']} B"
                extra = (f"engine {with_spread(row, 'engine_ns_per_packet')}; {with_spread(row, 'mpps', 3)} of "
                         f"{number(of(row, 'planned_mpps'), 3)} Mpps; busy {number(of(row, 'busy_percent'))} %")
            elif name == "lookup":
                label, extra = f"sluice, table lookup of {row['subscribers']:,} subscribers, keys made from headers, 1 or 2 probes", ""
            elif name == "rte_hash":
                label, extra = f"rte_hash, bulk lookup of {row['keys']:,} 64-bit keys, 1 probe", ""
            else:
                label, extra = name, f"{with_spread(row, 'mpps', 1)} Mpps"
            lines.append((label, what, extra))
        return table(("what", "busy ns/packet", ""), lines, 3)

    def cores(self):
        lines = []
        for size, name in ((64, "64 B"), (362, "IMIX"), (1500, "1500 B")):
            row = self.engine(MILLION, 2, size)
            ns = of(row, "ns_per_packet")
            if not ns:
                continue
            rates = [gbps * 1e9 / 8 / (size + 20) for gbps in (25, 100)]
            lines.append((name, number(ns), *(f"{number(pps / 1e6, 2)} Mpps: {pps * ns / 1e9:.2f}" for pps in rates)))
        return table(("1 M subscribers, held 2 ms", "ns a packet", "cores for 25 GbE one way", "cores for 100 GbE one way"), lines)

    def scenes(self):
        parts = []
        titles = {
            "lateness": "Departures at half load (gaps over 10 us that packets do not account for are left out, counted here)",
            "changes": "Rate changes and new subscribers during full load (spans of 100 ms with and without)",
            "overload": "A port offered twice its rate (shares by plans of 1, 2 and 4; 1,000 sparse subscribers)",
            "flood": "One subscriber flooded (the others' loss and delay, five turns of calm and flood)",
            "churn": "Subscribers who come and go", "memory": "Memory of idle subscribers", "pi": "PI pass",
        }
        for name, title in titles.items():
            case = self.figures.get(name)
            if case:
                values = "; ".join(f"{key.replace('_', ' ')} {value if isinstance(value, (list, dict)) else number(value, 2)}" for key, value in case.items())
                parts.append(f"- **{title}**: {values}.")
        for shards in self.figures.get("shards") or []:
            fed = "any shard, so that half of the packets cross" if shards["crossing"] else "its own shard"
            parts.append(f"- **Shards that feed themselves**, {shards['subscribers']:,} subscribers, conforming, a generator on each shard's "
                         f"core feeds {fed}; by each lcore's own busy time: one {with_spread(shards['one'], 'whole_mpps', 2)} Mpps, two "
                         f"{with_spread(shards['two'], 'whole_mpps', 2)}, {with_spread(shards, 'times', 2)} times; Mpps seen: one "
                         f"{with_spread(shards['one'], 'mpps', 2)}, two {with_spread(shards['two'], 'mpps', 2)}.")
        for start in filter(None, self.figures.get("startup", [])):
            parts.append(f"- **Startup** with {start['subscribers']:,} subscribers: ready after {start['ready_seconds']} s (empty: "
                         f"{start['empty_seconds']} s); loading them through the API took {start['api_load_seconds']} s; "
                         f"{start['rss_mb']:,} MB resident and {start['huge_mb']:,} MB of huge pages.")
        latency = self.figures.get("latency") or {}
        if latency:
            rows = "; ".join(f"{name} p50 {value.get('p50')} us, p99 {value.get('p99')} us" for name, value in latency.items())
            parts.append(f"- **Port to port over veth and net_af_packet**, a frame a millisecond: {rows}.")
        return "\n".join(parts) + "\n"

    def about(self):
        m = self.figures["machine"]
        quick = " One short round: spreads say little." if self.figures.get("quick") else ""
        return (f"{m['date']} UTC, commit {m['commit']}; {m['cpus']} x {m['cpu']}, kernel {m['kernel']}, DPDK {m['dpdk']}, {m['rustc']}; "
                f"load average {m['load_before']} before; {m['free_huge_pages']} free huge pages of 2 MiB; weight of the session "
                f"{'raised' if m['autogroup_weight_raised'] else 'not raised'}; {self.figures['took_seconds']} s in all. Medians of "
                f"interleaved runs of {self.figures['seconds_each']} s, least and most in brackets.{quick}\n")


def markdown(figures):
    report = Report(figures)
    notes = "".join(f"- {note}\n" for note in figures.get("notes", [])) or "- none\n"
    return "\n".join([
        report.about(), "### What must be reached\n", report.musts(), "### The packet path on one lcore\n", report.throughput(),
        "### Where the nanoseconds go\n", report.stages(), "### Peers in the same run\n", report.peers(),
        "### Cores for a port\n", report.cores(), "### Cases of their own\n", report.scenes(), "### Notes of the run\n", notes])


def put(path: pathlib.Path, report: str):
    """Puts the report between the markers of a file."""
    text = path.read_text()
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{path} has no {BEGIN} ... {END}")
    path.write_text(f"{before}{BEGIN}\n{report}{END}{after}")
