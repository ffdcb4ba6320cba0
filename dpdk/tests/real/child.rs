// SPDX-License-Identifier: Apache-2.0
//! What a child process does: starts EAL as it was ordered, uses it, and says how it went.

use std::io::Write;

use dpdk::{Eal, EalOptions, Lcore, Memory, Mempool, PoolOptions, Port, PortOptions, TxQueue};

use crate::common::cpus;

/// What to do once EAL runs.
#[derive(Default)]
struct Todo {
    /// Wait for a line of input first.
    hold: bool,
    /// Start EAL again.
    again: bool,
    /// Device to open, or none.
    open: String,
    /// Its rx queues.
    queues: u16,
    /// Buffers of the pool; 0: no pool without a device.
    buffers: u32,
    /// Answer each line of input with the port's state.
    link: bool,
    /// Frames to send.
    send: u32,
    /// How to let go of EAL, if in a special way.
    end: Option<String>,
}

pub(crate) fn obey(orders: &str) -> Result<String, String> {
    let (options, todo) = read(orders);
    let eal = Eal::init(&options).map_err(|e| e.to_string())?;
    if todo.again {
        let mut other = options.clone();
        other.file_prefix.push('2');
        drop(eal);
        return Eal::init(&other).map(|_| "started".to_owned()).map_err(|e| e.to_string());
    }
    if let Some(end) = todo.end {
        return Ok(outlive(eal, end == "on-main"));
    }
    if todo.hold {
        println!("\nholding");
        std::io::stdout().flush().expect("a pipe");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).expect("a pipe");
    }
    if todo.buffers > 0 || !todo.open.is_empty() {
        use_devices(&eal, &todo)?;
    }
    Ok("started".to_owned())
}

fn read(orders: &str) -> (EalOptions, Todo) {
    let cpu = cpus()[0];
    let mut options = EalOptions::new("", vec![Lcore { id: 0, cpu }], Memory::NoHuge { mb: 64 });
    let mut todo = Todo { queues: 1, ..Todo::default() };
    for order in orders.lines() {
        let (key, value) = order.split_once('=').expect("key=value");
        let number = || value.parse::<u32>().expect("a number");
        match key {
            "prefix" => value.clone_into(&mut options.file_prefix),
            "vdev" => options.vdevs.push(value.to_owned()),
            "pci" => options.allow.push(value.to_owned()),
            "extra" => options.extra.push(value.to_owned()),
            "no-huge" => options.memory = Memory::NoHuge { mb: number() },
            "huge" => options.memory = Memory::Huge { mb: number() },
            "lcore" => options.lcores.push(Lcore { id: number(), cpu }),
            "cpu" => options.lcores.push(Lcore { id: 1, cpu: number() }),
            "main" => options.main = number(),
            "no-lcores" => options.lcores.clear(),
            // Its arguments are taken, as a configuration gives them.
            "open" => value.clone_into(&mut todo.open),
            "queues" => todo.queues = u16::try_from(number()).expect("16 bits"),
            "buffers" => todo.buffers = number(),
            "hold" => todo.hold = true,
            "again" => todo.again = true,
            "end" => todo.end = Some(value.to_owned()),
            "link" => todo.link = true,
            "send" => todo.send = number(),
            _ => panic!("unknown order {key}"),
        }
    }
    (options, todo)
}

fn use_devices(eal: &Eal, todo: &Todo) -> Result<(), String> {
    let buffers = todo.buffers.max(64);
    let pool = PoolOptions { name: "pool".to_owned(), buffers, cache: 0, data_room: 2176, socket: None };
    let pool = Mempool::create(eal, &pool).map_err(|e| e.to_string())?;
    if todo.open.is_empty() {
        return Ok(());
    }
    let mut port = Port::open(eal, &todo.open).map_err(|e| e.to_string())?;
    let options = PortOptions { rx_queues: todo.queues, ..PortOptions::default() };
    port.configure(&options, std::slice::from_ref(&pool)).map_err(|e| e.to_string())?;
    let mut queues = port.start().map_err(|e| e.to_string())?;
    if todo.link {
        tell_link(&port);
    }
    send(&pool, &mut queues.tx[0], todo.send);
    Ok(())
}

/// Sends so many small frames, one after the other, of a type that nobody takes.
fn send(pool: &Mempool, queue: &mut TxQueue, frames: u32) {
    for _ in 0..frames {
        let mut packet = pool.alloc().expect("sent ones come back");
        assert!(packet.extend(&[0xff; 12]) && packet.extend(&[0x88, 0xb5]) && packet.extend(&[0; 46]));
        queue.send(packet).expect("af_packet waits for room");
    }
}

/// Answers each line of input with the state of the link and the frames missed.
fn tell_link(port: &Port) {
    println!("\nlink: {}\nmissed: {}", port.link().up, port.stats().imissed);
    for _ in std::io::stdin().lines() {
        println!("link: {}\nmissed: {}", port.link().up, port.stats().imissed);
        std::io::stdout().flush().expect("a pipe");
    }
}

/// Lets go of EAL and its pool while a packet is out, which must stay readable; then of EAL on its own main lcore.
fn outlive(eal: Eal, on_main: bool) -> String {
    let pool = crate::common::name("pool");
    let pool = PoolOptions { name: pool, buffers: 64, cache: 0, data_room: 2176, socket: None };
    let pool = Mempool::create(&eal, &pool).expect("memory for a small pool");
    if on_main {
        let eal = std::sync::Arc::new(eal);
        let held = std::sync::Arc::clone(&eal);
        let handle = eal.launch(0, move || drop((pool, held))).expect("the main lcore is idle");
        drop(eal);
        handle.join().expect("no panic");
        return "ended on its main lcore".to_owned();
    }
    let mut packet = pool.alloc().expect("64 buffers");
    assert!(packet.extend(b"still here"));
    drop((pool, eal));
    let text = String::from_utf8_lossy(packet.data()).into_owned();
    drop(packet);
    text
}
