// SPDX-License-Identifier: Apache-2.0
//! Death of the process at any moment: a child serves, clients change records as fast as they can, the child is
//! killed with SIGKILL in the midst of it. Whatever was acknowledged must be there, and nothing by half.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};

use crate::client::Client;
use crate::fake::Fake;
use crate::rig::{Folder, options, record, start};

const STORE: &str = "SLUICE_TEST_KILL_STORE";
/// Room of the child's shaper, which dies when it is asked for more.
const ROOM: &str = "SLUICE_TEST_KILL_ROOM";
const WORKERS: u32 = 4;
const ROUNDS: u32 = 8;
/// Records of one bulk request, all with the same rate.
const BULK: u32 = 200;
/// Rates begin here and rise by one with each change.
const FIRST: u64 = 1_000_000;

/// Not a test of its own: the child's life. Without the variable there is nothing to serve.
#[test]
fn child_serves_until_it_is_killed() {
    let Some(path) = std::env::var_os(STORE) else {
        return;
    };
    let shaper = Arc::new(Fake::default());
    if let Ok(room) = std::env::var(ROOM) {
        shaper.capacity.store(room.parse().unwrap(), Ordering::SeqCst);
        shaper.dies_when_full.store(true, Ordering::SeqCst);
    }
    let handle = start(options(), &shaper, Path::new(&path)).unwrap();
    println!("\nlistening {}", handle.local_addr());
    std::io::stdin().lines().for_each(drop);
}

fn spawn(path: &Path) -> (Child, Client) {
    spawn_with(path, &[])
}

fn spawn_with(path: &Path, variables: &[(&str, String)]) -> (Child, Client) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .args(["--exact", "kill::child_serves_until_it_is_killed", "--nocapture"])
        .env(STORE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(|address| address.parse().unwrap()))
        .expect("the child listens");
    (child, Client::new(address))
}

/// What a worker asked for last, and what of it was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    asked: u64,
    acked: u64,
}

fn with_rate(id: &str, number: u32, rate: u64) -> Value {
    let mut record = record(id, number);
    record["down_bps"] = json!(rate);
    record["up_bps"] = json!(rate);
    record
}

/// Changes one record by PUT and PATCH in turn until the server is gone.
fn change_one(client: &Client, worker: u32, mut progress: Progress, acks: &Sender<()>) -> Progress {
    let id = format!("w{worker}");
    let path = format!("/v1/subscribers/{id}");
    loop {
        progress.asked += 1;
        let rate = FIRST + progress.asked;
        let by_patch = progress.acked > 0 && progress.asked.is_multiple_of(2);
        let reply = if by_patch {
            client.try_call("PATCH", &path, json!({"down_bps": rate, "up_bps": rate}).to_string())
        } else {
            client.try_call("PUT", &path, with_rate(&id, worker, rate).to_string())
        };
        match reply {
            Ok(reply) if reply.status < 300 => progress.acked = progress.asked,
            Ok(reply) => panic!("{}", reply.text()),
            Err(_) => return progress,
        }
        // The main thread may have heard enough.
        let _ = acks.send(());
    }
}

/// Changes a set of records at once until the server is gone.
fn change_many(client: &Client, mut progress: Progress, acks: &Sender<()>) -> Progress {
    loop {
        progress.asked += 1;
        let line = |n| with_rate(&format!("bulk{n:03}"), 1000 + n, FIRST + progress.asked).to_string();
        let body = (0..BULK).map(line).collect::<Vec<_>>().join("\n");
        match client.try_call("POST", "/v1/subscribers/bulk", body) {
            Ok(reply) if reply.status == 200 => progress.acked = progress.asked,
            Ok(reply) => panic!("{}", reply.text()),
            Err(_) => return progress,
        }
        // The main thread may have heard enough.
        let _ = acks.send(());
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let folder = Folder::new();
    let path = folder.path("sluice.db");
    let mut progress = vec![Progress::default(); WORKERS as usize + 1];
    for round in 0..ROUNDS {
        let (mut child, client) = spawn(&path);
        let (acks, acked) = channel();
        // After so many acknowledgements; where the others are at that moment is chance.
        let kill_after = 20 + round * 17;
        progress = std::thread::scope(|scope| {
            let mut threads: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let (client, acks, before) = (client.clone(), acks.clone(), progress[worker as usize]);
                    scope.spawn(move || change_one(&client, worker, before, &acks))
                })
                .collect();
            let (many, caller, before) = (acks.clone(), client.clone(), progress[WORKERS as usize]);
            threads.push(scope.spawn(move || change_many(&caller, before, &many)));
            (0..kill_after).for_each(|_| acked.recv().unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        verify(&path, &mut progress, round);
    }
    assert!(progress.iter().all(|progress| progress.acked > 0), "{progress:?}");
}

#[test]
fn a_death_over_a_load_that_does_not_fit_costs_nobody_the_place() {
    let folder = Folder::new();
    let path = folder.path("sluice.db");
    let (mut child, client) = spawn_with(&path, &[(ROOM, "4".to_owned())]);
    // the last by name: whoever came in beside them would be loaded first
    for n in 0..4 {
        let id = format!("z{n}");
        client.call("PUT", &format!("/v1/subscribers/{id}"), record(&id, n).to_string()).json(201);
    }
    // were the shaper asked, it would die at once, with whatever the store holds then
    let body = (0..BULK).map(|n| record(&format!("b{n:03}"), 1000 + n).to_string()).collect::<Vec<_>>();
    client.call("POST", "/v1/subscribers/bulk", body.join("\n")).problem(507);
    child.kill().unwrap();
    child.wait().unwrap();
    let shaper = Arc::new(Fake::default());
    shaper.capacity.store(4, Ordering::SeqCst);
    let handle = start(options(), &shaper, &path).unwrap();
    assert_eq!(shaper.records().into_keys().collect::<Vec<_>>(), ["z0", "z1", "z2", "z3"]);
    handle.shutdown();
}

/// Opens the store anew and looks; what it holds counts as acknowledged from now on.
fn verify(path: &Path, progress: &mut [Progress], round: u32) {
    let shaper = Arc::new(Fake::default());
    let handle = start(options(), &shaper, path).unwrap();
    let records = shaper.records();
    let check = |id: &str, progress: &Progress| {
        let Some(record) = records.get(id) else {
            assert_eq!(progress.acked, 0, "round {round}: {id} is lost");
            return 0;
        };
        assert_eq!(record.down_bps, record.up_bps, "round {round}: {id} is there by half");
        let have = record.down_bps - FIRST;
        assert!(
            (progress.acked..=progress.asked).contains(&have),
            "round {round}: {id} has {have}: {progress:?}"
        );
        have
    };
    for (worker, progress) in progress.iter_mut().enumerate() {
        if worker < WORKERS as usize {
            progress.acked = check(&format!("w{worker}"), progress);
        } else {
            let set: Vec<_> = (0..BULK).map(|n| check(&format!("bulk{n:03}"), progress)).collect();
            assert!(
                set.iter().all(|have| *have == set[0]),
                "round {round}: a bulk is there by half: {set:?}"
            );
            progress.acked = set[0];
        }
        progress.asked = progress.asked.max(progress.acked);
    }
    handle.shutdown();
}
