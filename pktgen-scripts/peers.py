# SPDX-License-Identifier: Apache-2.0
"""The processes a drive is made of: testpmd or Pktgen that sends and takes back, and Sluice or testpmd between."""

import ctypes
import glob
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request

# Without hugepages everything runs everywhere; the figures are no benchmark.
MEMORY = ["--no-huge", "-m", "1024", "--no-pci", "--no-telemetry"]


PR_SET_PDEATHSIG = 1


def die_with_parent(number=signal.SIGKILL):
    """This process gets the signal when the one that made it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


class Broken(Exception):
    """Something of the rig did not do its part."""


def wait_for(what, seconds, condition):
    """Polls until `condition()` is truthy, and gives that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise Broken(f"{what}: not within {seconds} s")


class KernelDrops:
    """What the kernel lost on its way into packet sockets and out of interfaces of this namespace, by interface.

    The driver net_af_packet of DPDK 22.11 does not report what found its ring full, so nobody inside can count it. The
    kernel does: each socket is duplicated from the process that holds it and asked."""

    PIDFD_OPEN, PIDFD_GETFD = 434, 438
    SOL_PACKET, PACKET_STATISTICS = 263, 6

    def __init__(self):
        self.into_sockets = {}

    def sockets(self):
        """Inodes of the packet sockets in this namespace, with their interface."""
        names = dict(socket.if_nameindex())
        with open("/proc/net/packet", encoding="ascii") as file:
            rows = [line.split() for line in file.read().splitlines()[1:]]
        return {int(row[8]): names.get(int(row[4]), "?") for row in rows}

    def read(self):
        """Adds what was lost since the last time. A process that ended takes its count with it."""
        wanted, libc, done = self.sockets(), ctypes.CDLL(None, use_errno=True), set()
        for path in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(path))
            except OSError:
                continue
            if not inode or int(inode[1]) not in wanted or inode[1] in done:
                continue
            pid, number = int(path.split("/")[2]), int(path.split("/")[4])
            process = libc.syscall(self.PIDFD_OPEN, pid, 0)
            copy = libc.syscall(self.PIDFD_GETFD, process, number, 0)
            if process >= 0:
                os.close(process)
            if copy < 0:
                continue
            done.add(inode[1])
            with socket.socket(fileno=copy) as held:
                statistics = held.getsockopt(self.SOL_PACKET, self.PACKET_STATISTICS, 12)
            name = wanted[int(inode[1])]
            # asking sets the socket's counters back to 0
            self.into_sockets[name] = self.into_sockets.get(name, 0) + int.from_bytes(statistics[4:8], "little")
        return self.into_sockets

    @staticmethod
    def out_of(interface):
        """Packets an interface dropped on its way out: a tap nobody read in time."""
        with open("/proc/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, figures = line.partition(":")
                if name.strip() == interface:
                    return int(figures.split()[11])
        return 0


class Process:
    """A process in a group of its own, known to its rig (which ends it) before anything can fail."""

    def __init__(self, name, words, rig, **options):
        self.name, self.log = name, os.path.join(rig.folder, f"{name}.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                                          start_new_session=True, preexec_fn=die_with_parent, **options)
        rig.processes.append(self)

    def said(self, since=0):
        with open(self.log, "rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def check(self):
        if self.child.poll() is not None:
            raise Broken(f"{self.name} ended with {self.child.returncode}:\n{self.said()[-2000:]}")

    def kill(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()


class Testpmd(Process):
    """dpdk-testpmd at its prompt."""

    PROMPT = "testpmd> "

    def __init__(self, name, rig, cpu, vdevs):
        # testpmd buffers its output when that is no terminal
        words = ["stdbuf", "-oL", rig.options.testpmd, *MEMORY, f"--file-prefix=sluice-{name}-{os.getpid()}",
                 f"--lcores=0@{cpu},1@{cpu}",
                 *(f"--vdev={vdev}" for vdev in vdevs), "--", "-i", "--no-mlockall", "--no-flush-rx",
                 "--total-num-mbufs=32768", "--rxd=1024", "--txd=1024", "--forward-mode=io"]
        super().__init__(name, words, rig)
        self.answered = 0
        if "Start ports failed" in self.settle(60):
            raise Broken(f"{name} could not start its ports:\n{self.said()[-2000:]}")

    def settle(self, seconds=15):
        """Waits for the prompt; gives what was said since the one before."""
        def prompted():
            self.check()
            text = self.said(self.answered)
            return text if self.PROMPT in text else None
        # a prompt is no line, and stdbuf holds it back until the next line: an empty command brings it out
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        text = wait_for(f"the prompt of {self.name}", seconds, prompted)
        self.answered += len(text.encode())
        return text

    def command(self, line):
        self.child.stdin.write(line.encode() + b"\n")
        return self.settle()

    def ports(self):
        """Counters of all ports: rx, missed, tx."""
        text = self.command("show port stats all")
        pattern = (r"for port (\d+) .*?RX-packets: (\d+) +RX-missed: (\d+).*?RX-errors: (\d+)"
                   r".*?RX-nombuf: +(\d+).*?TX-packets: (\d+)")
        found = re.findall(pattern, text, re.S)
        return {int(port): {"rx": int(rx), "missed": int(missed) + int(errors) + int(nombuf), "tx": int(tx)}
                for port, rx, missed, errors, nombuf, tx in found}

    def dropped(self):
        """Packets that no port took, over the whole run of the forwarding."""
        text = self.command("show fwd stats all")
        return sum(int(n) for n in re.findall(r"for port \d+ .*?TX-dropped: (\d+)", text, re.S))

    def quit(self):
        self.child.stdin.write(b"quit\n")
        self.child.stdin.close()
        self.child.wait(20)


class SluiceUnderTest(Process):
    """`sluice run` with a config of its own; HTTP on loopback."""

    PORT = 8480

    def __init__(self, rig, config, drops_unknown):
        self.drops_unknown = drops_unknown
        path = os.path.join(rig.folder, "sluice.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        super().__init__("sluice", [rig.options.sluice, "run", "--config", path], rig)
        wait_for("sluice ready", 60, self.ready)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.PORT}{path}", timeout=30) as answer:
            return answer.read().decode()

    def ready(self):
        """Ready, and asked only once it listens: a packet socket takes from every interface, loopback too, until it is
        bound, so a connection that is refused while the ports open is seen as traffic."""
        self.check()
        with open("/proc/net/tcp", encoding="ascii") as file:
            if not re.search(rf":{self.PORT:04X} 00000000:0000 0A ", file.read()):
                return False
        try:
            self.get("/readyz")
            return True
        except OSError:
            return False

    def samples(self):
        """/metrics as {(name, labels): value}; labels as a sorted tuple of pairs."""
        found = {}
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*?)\})? (\S+)$", self.get("/metrics"), re.M):
            pairs = tuple(sorted(re.findall(r'(\w+)="(.*?)"', labels)))
            found[name, pairs] = float(value)
        return found

    @staticmethod
    def total(samples, name, **labels):
        """Sum of a metric over the series that carry these labels."""
        wanted = set(labels.items())
        return int(sum(value for (found, pairs), value in samples.items() if found == name and wanted <= set(pairs)))

    def counters(self):
        s, total = self.samples(), self.total
        drops = {}
        for (name, pairs), value in s.items():
            if value and name in ("sluice_port_drops_total", "sluice_queue_dropped_total"):
                labels = dict(pairs)
                where = "" if name == "sluice_queue_dropped_total" else labels["port"] + ":"
                drops[where + labels["reason"]] = drops.get(where + labels["reason"], 0) + int(value)
        unclassified = total(s, "sluice_unclassified_packets_total")
        if self.drops_unknown and unclassified:
            drops["unknown"] = unclassified
        return {
            "in": total(s, "sluice_port_packets_total", port="core", way="rx"),
            "out": total(s, "sluice_port_packets_total", port="access", way="tx"),
            "drops": drops,
            "marked": total(s, "sluice_queue_marked_total"),
        }

    def quit(self):
        """SIGTERM drains and exits 0; the 5 s it may take are another test's, on a machine at rest."""
        self.child.send_signal(signal.SIGTERM)
        code = self.child.wait(20)
        if code:
            raise Broken(f"sluice ended with {code} after SIGTERM:\n{self.said()[-2000:]}")


class TestpmdUnderTest(Testpmd):
    """testpmd in io mode where Sluice would be: shows what the rig itself does."""

    def __init__(self, rig, core, access):
        super().__init__("peer", rig, 1, [core, access])
        self.command("start")

    def counters(self):
        ports, drops = self.ports(), {}
        if ports[0]["missed"]:
            drops["core:missed"] = ports[0]["missed"]
        lost = self.dropped()
        if lost:
            drops["access:tx"] = lost
        return {"in": ports[0]["rx"], "out": ports[1]["tx"], "drops": drops, "marked": 0}
