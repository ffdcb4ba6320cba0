// SPDX-License-Identifier: Apache-2.0
//! The running binary under load through what happens to it: told to end, killed, attacked over HTTP, records
//! removed, links lost, an lcore without its CPU. Forwarding goes on where it can, and every packet is counted.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::direct::{Direct, Line, Plan, address, server};
use tests::frames::{Capture, ethernet, ipv4, send, udp};
use tests::machine::wait_for;
use tests::rig::{Process, sh};
use tests::scene::precise;
use tests::traffic::{run_udp, traffic_server};
use tests::verdict::{
    Timed, all, conserved, conserved_for, let_flow, may_make_namespaces, undisturbed, within,
};

const A: Line = Line { id: "a", pair: 0, host: 10, down_bps: 20_000_000, up_bps: 10_000_000 };
const B: Line = Line { id: "b", pair: 0, host: 20, down_bps: 5_000_000, up_bps: 5_000_000 };
/// IP bytes of the packets of a flood, and what each costs with `overhead = "ethernet"`.
const FLOOD_IP: f64 = 1_428.0;
const FLOOD_COST: f64 = 1_466.0;

#[expect(clippy::disallowed_methods, reason = "real traffic takes real time")]
fn now() -> Instant {
    Instant::now()
}

/// More than a plan allows, from the server to one host of the client, until dropped.
struct Flood {
    client: Process,
    _server: Process,
}

impl Flood {
    fn start(network: &Direct, host: u8, rate_bps: u64) -> Result<Self> {
        let (pair, folder) = (&network.pairs[0], network.folder.as_path());
        let at = format!("{}:{}", server(0), 8400 + u16::from(host));
        let serving = traffic_server(&pair.server, &at, folder)?;
        let rate = rate_bps.to_string();
        let options = ["--direction", "down", "--seconds", "60", "--rate-bps", &rate, "--ecn", "not_ect"];
        let client = run_udp(&pair.client, (&address(0, host), &at), "cbr", &options, folder)?;
        let flood = Self { client, _server: serving };
        let before = received(network)?;
        let flows = wait_for(Duration::from_secs(10), || {
            received(network).is_ok_and(|packets| packets > before + 200.0)
        });
        ensure!(flows, "the flood does not flow: {}", flood.client.output());
        Ok(flood)
    }
}

/// Frames that came in by the core port.
fn received(network: &Direct) -> Result<f64> {
    network.shaper.metric_sum("sluice_port_packets_total", &["port=\"core0\"", "way=\"rx\""])
}

/// Sets a network and runs on it; what Sluice said goes with an error.
fn on(name: &str, plan: &Plan, run: impl FnOnce(&mut Direct) -> Result<()>) {
    if !may_make_namespaces(name) {
        return;
    }
    let mut network = Direct::set(plan).unwrap_or_else(|error| panic!("{error:#}"));
    run(&mut network).unwrap_or_else(|error| panic!("{error:#}; sluice said: {}", network.shaper.output()));
}

fn two() -> Plan {
    Plan { lines: vec![A, B], ..Plan::default() }
}

fn record(network: &Direct, id: &str) -> Result<Value> {
    network.shaper.json(&format!("/v1/subscribers/{id}"))
}

fn dropped(network: &Direct, reason: &str) -> Result<f64> {
    network.shaper.metric_sum("sluice_queue_dropped_total", &[&format!("reason=\"{reason}\"")])
}

/// Frames to one host, each different, of 1,428 bytes of IP.
fn numbered(host: u8, count: u16) -> Vec<Vec<u8>> {
    let frame = |number: u16| {
        let mut payload = vec![0; 1_400];
        payload[..2].copy_from_slice(&number.to_be_bytes());
        let packet = ipv4([100, 64, 255, 1], [100, 64, 0, host], 17, &udp(5_000, 5_001, &payload));
        ethernet([2, 0, 0, 0, 0, 0x0c], [2, 0, 0, 0, 0, 5], 0x0800, &packet)
    };
    (0..count).map(frame).collect()
}

/// Somebody else on the packet lcore's CPU, who notices when the machine takes it away: once Sluice has ended,
/// nobody can ask the lcore.
struct Canary {
    end: Arc<AtomicBool>,
    longest: std::thread::JoinHandle<Duration>,
}

impl Canary {
    fn start(cpu: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&end);
        let longest = std::thread::spawn(move || {
            core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
            let mut longest = Duration::ZERO;
            while !until.load(Relaxed) {
                let begin = now();
                let_flow(0.01);
                longest = longest.max(begin.elapsed());
            }
            longest
        });
        Self { end, longest }
    }

    /// In microseconds, where it was longer than the lcore itself would ever keep its neighbours waiting.
    fn gap_us(self) -> u64 {
        self.end.store(true, Relaxed);
        let longest = self.longest.join().unwrap_or_default();
        if longest > Duration::from_millis(300) {
            u64::try_from(longest.as_micros()).unwrap_or(u64::MAX)
        } else {
            0
        }
    }
}

/// Queues `FRAMES` frames to B, tells Sluice to end and says how long it took and how many of the frames came out.
fn drain(network: &mut Direct) -> Result<Timed> {
    const FRAMES: u16 = 150;
    let _flood = Flood::start(network, A.host, 30_000_000)?;
    let pair = &network.pairs[0];
    let capture = Capture::start(&pair.client, &pair.client_end, "drained", &network.folder)?;
    let frames = numbered(B.host, FRAMES);
    send(&pair.server, &pair.server_end, &frames, &network.folder)?;
    let mut queue = network.shaper.stats("b")?.down.classic;
    wait_for(Duration::from_secs(5), || {
        queue = network.shaper.stats("b").map(|stats| stats.down.classic).unwrap_or_default();
        queue.arrived >= u64::from(FRAMES)
    });
    conserved_for(&network.shaper, &["a", "b"])?;
    ensure!(queue.queued > 20, "nothing was left to be drained: {queue:?}");
    let begin = now();
    let ended = network.shaper.process().terminate(Duration::from_secs(20));
    let took = begin.elapsed().as_secs_f64();
    ensure!(ended.is_some_and(|status| status.success()), "ended with {ended:?} after {took} s");
    let lost = || {
        let came: BTreeSet<Vec<u8>> = capture.frames().into_iter().collect();
        frames.iter().filter(|frame| !came.contains(*frame)).count()
    };
    // tcpdump may take its time
    wait_for(Duration::from_secs(5), || lost() == 0);
    Ok(all([
        within("end after SIGTERM, s", took, 0.0, 5.0),
        within("queued frames that were not sent", precise(lost() as u64), 0.0, 0.0),
    ]))
}

#[test]
fn sigterm_under_load_sends_what_is_queued_and_ends_with_0_within_5_s() {
    let name = "sigterm_under_load_sends_what_is_queued_and_ends_with_0_within_5_s";
    let slow = Line { down_bps: 1_000_000, ..B };
    let profile = "aqm = \"fifo\"\nlimit_us = 2000000";
    undisturbed(name, || {
        let mut network = Direct::set(&Plan { lines: vec![A, slow], profile, ..Plan::default() })?;
        let canary = Canary::start(usize::try_from(packet_cpu(&network)?)?);
        let verdict =
            drain(&mut network).with_context(|| format!("sluice said: {}", network.shaper.output()))?;
        Ok((verdict, canary.gap_us()))
    });
}

/// The CPU of the packet lcore.
fn packet_cpu(network: &Direct) -> Result<u64> {
    network.shaper.json("/v1/lcores")?["items"][0]["cpu"].as_u64().context("its CPU")
}

/// KILL right after what was acknowledged, and the same again on the same store.
fn kill_and_restart(network: &mut Direct) -> Result<()> {
    network.shaper.kill();
    ensure!(!network.shaper.alive(), "it outlived KILL");
    network.restart()
}

#[test]
fn kill_9_under_load_comes_back_with_the_last_acknowledged_state_and_forwards() {
    let name = "kill_9_under_load_comes_back_with_the_last_acknowledged_state_and_forwards";
    on(name, &Plan { hosts: &[20], lines: vec![A], ..Plan::default() }, |network| {
        let _flood = Flood::start(network, A.host, 30_000_000)?;
        let (status, body) = network.shaper.put("/v1/subscribers/b", &B.record())?;
        ensure!(status == 201, "{status} {body}");
        kill_and_restart(network)?;
        ensure!(record(network, "b")? == serde_json::from_str::<Value>(&body)?, "PUT was lost");
        network.wait_for_path(&B)?;
        network.wait_for_path(&A)?;

        let mut body = String::new();
        for down_bps in (6_000_000..=7_000_000).step_by(50_000) {
            let answer =
                network.shaper.patch("/v1/subscribers/a", &format!("{{\"down_bps\": {down_bps}}}"))?;
            ensure!(answer.0 == 200, "{answer:?}");
            body = answer.1;
        }
        kill_and_restart(network)?;
        let kept = record(network, "a")?;
        ensure!(kept == serde_json::from_str::<Value>(&body)?, "{kept} came back, not {body}");
        ensure!(kept["down_bps"] == 7_000_000);

        ensure!(network.shaper.delete("/v1/subscribers/b")? == 204);
        // what the configuration says by now does not count any more
        network.config = network.config.replace("down_bps = 20000000", "down_bps = 99000000");
        network.config += "[[subscriber]]\nid = \"z\"\ndown_bps = 1000000\nup_bps = 1000000\n\
                           match = { ipv4 = [\"100.64.0.77\"] }\n";
        kill_and_restart(network)?;
        let all = network.shaper.json("/v1/subscribers")?;
        let ids: Vec<_> = all["items"].as_array().context("items")?.iter().map(|item| &item["id"]).collect();
        ensure!(ids == ["a"], "{all}");
        ensure!(record(network, "a")?["down_bps"] == 7_000_000, "the store wins over seeds");

        // of four packets down, three are dropped by now: a ping might not get through
        let before = network.shaper.stats("a")?;
        let flows = wait_for(Duration::from_secs(5), || {
            network.shaper.stats("a").is_ok_and(|stats| {
                stats.down.classic.forwarded > before.down.classic.forwarded + 200
                    && stats.up.classic.forwarded > before.up.classic.forwarded
            })
        });
        ensure!(flows, "the flood does not flow any more");
        conserved_for(&network.shaper, &["a"])
    });
}

/// Clients that mean no good, until dropped.
struct Attack {
    end: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    _idle: Vec<TcpStream>,
}

impl Attack {
    fn start(api: &str) -> Result<Self> {
        let connect = || {
            let stream = TcpStream::connect(api)?;
            stream.set_write_timeout(Some(Duration::from_secs(1)))?;
            stream.set_read_timeout(Some(Duration::from_secs(1))).map(|()| stream)
        };
        let idle = (0..200).map(|_| connect()).collect::<Result<_, _>>()?;
        let slow = (0..20).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
        let end = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&end);
        // a header that never ends, a byte at a time
        let drip = std::thread::spawn(move || {
            let mut slow = slow;
            for byte in b"GET /v1/subscribers HTTP/1.1\r\nX-Slow: ".iter().chain(b"a".iter().cycle()) {
                for stream in &mut slow {
                    let _ = stream.write_all(&[*byte]);
                }
                let_flow(0.05);
                if until.load(Relaxed) {
                    return;
                }
            }
        });
        let (until, api) = (Arc::clone(&end), api.to_owned());
        let shout = std::thread::spawn(move || {
            while !until.load(Relaxed) {
                for request in rubbish() {
                    if let Ok(mut stream) = TcpStream::connect(&api) {
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                        let _ = stream.write_all(&request);
                        let _ = stream.read(&mut [0; 512]);
                    }
                }
            }
        });
        Ok(Self { end, threads: vec![drip, shout], _idle: idle })
    }
}

/// Requests that are refused: bodies that are too large or no JSON, heads that are too large or no HTTP.
fn rubbish() -> Vec<Vec<u8>> {
    let put = |body: &[u8], length: usize| {
        let head = format!(
            "PUT /v1/subscribers/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    let head =
        |fill: &str| format!("GET / HTTP/1.1\r\nX-Large: {}\r\n\r\n", fill.repeat(40_000)).into_bytes();
    vec![
        put(&vec![b'['; 2_000_000], 2_000_000),
        put(b"{\"id\": ", usize::MAX / 2),
        put(b"{oops}", 6),
        put(&b"[".repeat(60_000), 60_000),
        head("x"),
        vec![0; 4_096],
        b"POST /v1/subscribers/bulk?mode=replace HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
            .to_vec(),
    ]
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The rate that A gets over `seconds`, in bits per second with overhead.
fn rate_of_a(network: &Direct, seconds: f64) -> Result<f64> {
    let sent = || network.shaper.stats("a").map(|stats| stats.down.classic.forwarded_bytes);
    let (begin, first) = (now(), sent()?);
    let_flow(seconds);
    let (end, last) = (now(), sent()?);
    Ok(precise(last - first) * 8.0 / end.duration_since(begin).as_secs_f64() * FLOOD_COST / FLOOD_IP)
}

fn keeps_its_rate(network: &Direct, what: &str, during: impl FnOnce() -> Result<()>) -> Result<Timed> {
    let plan = precise(A.down_bps);
    let before = network.shaper.stats("a")?.down.classic.forwarded_bytes;
    let begin = now();
    during()?;
    let after = network.shaper.stats("a")?.down.classic.forwarded_bytes;
    let rate = precise(after - before) * 8.0 / begin.elapsed().as_secs_f64() * FLOOD_COST / FLOOD_IP;
    Ok(within(what, rate / 1e6, plan * 0.97 / 1e6, plan * 1.03 / 1e6))
}

#[test]
fn hostile_clients_and_a_dead_http_side_leave_a_flow_its_rate() {
    let name = "hostile_clients_and_a_dead_http_side_leave_a_flow_its_rate";
    undisturbed(name, || {
        let mut network = Direct::set(&two())?;
        let flood = Flood::start(&network, A.host, 30_000_000)?;
        let attacked = {
            let _attack = Attack::start(network.api())?;
            keeps_its_rate(&network, "while clients attack, Mb/s", || {
                let_flow(4.0);
                let (status, body) = network.shaper.get("/healthz")?;
                ensure!(status == 200, "nobody else is served: {status} {body}");
                Ok(())
            })?
        };
        // no descriptor left: nobody can connect any more, which is how an HTTP side looks that has died
        let pid = network.shaper.process().id();
        let limit = |soft: &str| sh(&format!("prlimit --pid {pid} --nofile={soft}:"));
        let was = sh(&format!("prlimit --pid {pid} --nofile --noheadings --raw --output SOFT"))?;
        let deaf = keeps_its_rate(&network, "while HTTP is dead, Mb/s", || {
            limit("1")?;
            let strangers: Result<Vec<_>, _> = (0..8).map(|_| TcpStream::connect(network.api())).collect();
            let_flow(3.0);
            drop(strangers);
            limit(was.trim()).map(drop)
        })?;
        let back = wait_for(Duration::from_secs(10), || {
            network.shaper.get("/readyz").is_ok_and(|(status, _)| status == 200)
        });
        ensure!(back, "HTTP does not come back: {}", network.shaper.output());
        let (status, _) = network.shaper.patch("/v1/subscribers/a", "{\"up_bps\": 9000000}")?;
        ensure!(status == 200, "records cannot be changed any more: {status}");
        drop(flood);
        conserved(&network.shaper, &["a", "b"], false)?;
        Ok((all([attacked, deaf]), network.shaper.gap_us()?))
    });
}

/// Packets to B that no subscriber is known for.
fn unknown(network: &Direct) -> Result<f64> {
    let labels = ["dir=\"down\"", "kind=\"unknown_ipv4\""];
    network.shaper.metric_sum("sluice_unclassified_packets_total", &labels)
}

fn created(network: &Direct, line: &Line) -> Result<()> {
    let (status, body) = network.shaper.put(&format!("/v1/subscribers/{}", line.id), &line.record())?;
    ensure!(status == 201, "{status} {body}");
    Ok(())
}

/// Waits until more than a third of a second of B's traffic is queued and its AQM has begun to work.
fn fills(network: &Direct) -> Result<()> {
    let full = wait_for(Duration::from_secs(10), || {
        network
            .shaper
            .stats("b")
            .is_ok_and(|stats| stats.down.classic.queued > 150 && stats.down.p_prime > 0.0)
    });
    ensure!(full, "no queue builds up: {:?}", network.shaper.stats("b")?.down);
    Ok(())
}

#[test]
fn a_subscriber_removed_under_load_becomes_unknown_and_its_id_is_safe_to_reuse() {
    let name = "a_subscriber_removed_under_load_becomes_unknown_and_its_id_is_safe_to_reuse";
    // a queue that lasts longer than the removal takes
    let profile = "aqm = \"dualpi2\"\ntarget_us = 400000\nlimit_us = 1000000";
    on(name, &Plan { profile, ..two() }, |network| {
        let flood = Flood::start(network, B.host, 10_000_000)?;
        for round in 0..6 {
            fills(network)?;
            let before = (dropped(network, "removed")?, unknown(network)?);
            ensure!(network.shaper.delete("/v1/subscribers/b")? == 204);
            let (status, _) = network.shaper.get("/v1/subscribers/b/stats")?;
            ensure!(status == 404, "round {round}: statistics of what is gone: {status}");
            let gone = wait_for(Duration::from_secs(5), || {
                unknown(network).is_ok_and(|packets| packets > before.1 + 20.0)
                    && dropped(network, "removed").is_ok_and(|packets| packets > before.0)
            });
            let after = (dropped(network, "removed")?, unknown(network)?);
            ensure!(gone, "round {round}: removed and unknown were {before:?} and are {after:?}");

            // others, who may get the ids
            for (id, host) in [("other", 30), ("another", 31), ("third", 32)] {
                created(network, &Line { id, host, ..B })?;
                let begun = network.shaper.stats(id)?;
                let fresh = begun.down.classic.arrived == 0 && begun.up.classic.arrived == 0;
                ensure!(fresh && begun.down.p_prime == 0.0, "round {round}: {id} inherited {begun:?}");
            }
            for id in ["other", "another", "third"] {
                ensure!(network.shaper.delete(&format!("/v1/subscribers/{id}"))? == 204);
            }
            created(network, &B)?;
            conserved_for(&network.shaper, &["a", "b"])?;
        }
        fills(network)?;
        drop(flood);
        conserved(&network.shaper, &["a", "b"], false).map(drop)
    });
}

/// What `/v1/events` says, as it comes.
struct Events(Arc<Mutex<String>>);

impl Events {
    fn listen(api: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(api)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        // ends with the stream, at the latest with the server
        std::thread::spawn(move || {
            let mut piece = [0; 4_096];
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                if let Ok(mut text) = into.lock() {
                    text.push_str(&String::from_utf8_lossy(&piece[..read]));
                }
            }
        });
        let events = Self(text);
        ensure!(events.come("200 OK"), "no events: {}", events.so_far());
        Ok(events)
    }

    fn so_far(&self) -> String {
        self.0.lock().map(|text| text.clone()).unwrap_or_default()
    }

    fn come(&self, what: &str) -> bool {
        wait_for(Duration::from_secs(5), || self.so_far().contains(what))
    }
}

#[test]
fn a_link_that_goes_down_and_up_is_told_counted_and_resumes() {
    on("a_link_that_goes_down_and_up_is_told_counted_and_resumes", &two(), |network| {
        let flood = Flood::start(network, A.host, 30_000_000)?;
        let events = Events::listen(network.api())?;
        let before = dropped(network, "link")?;
        let pair = &network.pairs[0];
        pair.client.sh(&format!("ip link set {} down", pair.client_end))?;
        ensure!(events.come("\"port\":\"access0\",\"up\":false"), "no event: {}", events.so_far());
        ensure!(events.so_far().contains("event: link"), "{}", events.so_far());
        let (status, body) = network.shaper.get("/readyz")?;
        ensure!(
            status == 503 && body.contains("the link of port \\\"access0\\\" is down"),
            "{status} {body}"
        );
        let state = network.shaper.json("/v1/ports")?;
        ensure!(state.to_string().contains("\"link\":false"), "{state}");
        let counted = wait_for(Duration::from_secs(5), || {
            dropped(network, "link").is_ok_and(|packets| packets > before + 100.0)
        });
        ensure!(
            counted,
            "packets for a dead link are not counted: {} before, {}",
            before,
            dropped(network, "link")?
        );
        conserved_for(&network.shaper, &["a", "b"])?;

        pair.client.sh(&format!("ip link set {} up", pair.client_end))?;
        ensure!(events.come("\"port\":\"access0\",\"up\":true"), "no event: {}", events.so_far());
        let ready = wait_for(Duration::from_secs(5), || {
            network.shaper.get("/readyz").is_ok_and(|(status, _)| status == 200)
        });
        ensure!(ready, "not ready: {:?}", network.shaper.get("/readyz"));
        let sent = network.shaper.stats("a")?.down.classic.forwarded;
        let resumes = wait_for(Duration::from_secs(10), || {
            network.shaper.stats("a").is_ok_and(|stats| stats.down.classic.forwarded > sent + 500)
        });
        ensure!(resumes, "traffic does not resume");
        let (own, far) = (address(0, A.host), server(0));
        ensure!(wait_for(Duration::from_secs(10), || network.reaches(0, &own, &far)), "no way back");
        drop(flood);
        conserved(&network.shaper, &["a", "b"], false).map(drop)
    });
}

/// Takes a CPU away from everybody who is not real-time, for two seconds of its time; why it cannot, if it cannot.
/// The kernel itself ends it then: nobody on that CPU might be able to.
fn hog(network: &Direct, cpu: u64) -> Result<Process, String> {
    let cpu = cpu.to_string();
    let mut command = Command::new("timeout");
    command.args(["3", "chrt", "-f", "50", "taskset", "-c", &cpu]);
    command.args(["sh", "-c", "ulimit -t 2 && while :; do :; done"]);
    let log = network.folder.join("hog.log");
    let mut hog = Process::start("hog", &mut command, &log).map_err(|error| format!("{error:#}"))?;
    let_flow(0.1);
    match hog.ended() {
        Some(_) => Err(format!("the scheduler gives no real-time priority here: {}", hog.output().trim())),
        None => Ok(hog),
    }
}

#[test]
fn an_lcore_without_its_cpu_is_seen_within_a_second_and_recovers() {
    let name = "an_lcore_without_its_cpu_is_seen_within_a_second_and_recovers";
    on(name, &two(), |network| {
        let flood = Flood::start(network, A.host, 30_000_000)?;
        let cpu = packet_cpu(network)?;
        let stalls = |network: &Direct| -> Result<u64> {
            network.shaper.json("/v1/lcores")?["items"][0]["stalls"].as_u64().context("stalls")
        };
        let before = stalls(network)?;
        let begin = now();
        let hog = match hog(network, cpu) {
            Ok(hog) => hog,
            Err(why) => {
                tests::skip(name, &why);
                return Ok(());
            }
        };
        // somebody who asks the lcore itself must not keep others from seeing
        let asked = std::thread::spawn({
            let api = network.api().to_owned();
            move || ask(&api, "/v1/subscribers/a/stats")
        });
        let seen = wait_for(Duration::from_secs(5), || stalls(network).is_ok_and(|stalls| stalls > before));
        let took = begin.elapsed();
        let (status, body) = network.shaper.get("/readyz")?;
        println!("seen after {took:?}; ready: {status} {body}");
        let gap = network.shaper.gap_us()?;
        drop(hog);
        let _ = asked.join();
        ensure!(seen || gap < 500_000, "a stall of {gap} us was not seen");
        if !seen {
            tests::skip(name, &format!("this kernel lets nobody take a CPU for half a second ({gap} us)"));
            return Ok(());
        }
        // 100 ms for whatever else kept this thread from looking
        ensure!(took < Duration::from_millis(1_100), "it was seen after {took:?}");
        let recovers = wait_for(Duration::from_secs(5), || {
            network.shaper.get("/readyz").is_ok_and(|(status, _)| status == 200)
        });
        ensure!(recovers, "not ready: {:?}", network.shaper.get("/readyz")?);
        let rate = rate_of_a(network, 1.0)?;
        ensure!(rate > precise(A.down_bps) * 0.5, "the flow does not resume: {rate} b/s");
        drop(flood);
        conserved_for(&network.shaper, &["a", "b"])
    });
}

/// The status of an answer that may be long in coming.
fn ask(api: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(api).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}
