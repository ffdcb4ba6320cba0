// SPDX-License-Identifier: Apache-2.0
//! A running `sluice run` whose ports are rings of its own and carry nothing: for its API, without root.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;

use anyhow::Result;

use crate::shaper::Shaper;

/// Starts it with records of these names, hosts 10 and on of 100.64.0.0/24.
pub fn start(folder: &Path, names: &[&str], token: Option<&str>) -> Result<Shaper> {
    std::fs::create_dir_all(folder)?;
    let api = format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    let mut config = format!(
        "[dataplane]\nlcores = {{ compact = \"1@{cpu}\" }}\nhugepages = \"never\"\nbuffers = 16384\n\
         subscribers = 4096\neal_args = [\"--file-prefix=slq-{id}\"]\n[store]\npath = \"@STORE@\"\n[api]\nlisten = \"{api}\"\n",
        cpu = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)),
        id = std::process::id(),
    );
    if let Some(token) = token {
        let path = folder.join("token");
        std::fs::write(&path, token)?;
        writeln!(config, "token_file = \"{}\"", path.display())?;
    }
    for ((name, peer), number) in [("core", "access"), ("access", "core")].into_iter().zip(0..) {
        writeln!(
            config,
            "[[port]]\nname = \"{name}\"\nrole = \"{name}\"\npeer = \"{peer}\"\ndevice = \"net_ring{number}\""
        )?;
    }
    for (id, host) in names.iter().zip(10..) {
        writeln!(
            config,
            "[[subscriber]]\nid = \"{id}\"\ndown_bps = 100_000_000\nup_bps = 20_000_000\n\
             match = {{ ipv4 = [\"100.64.0.{host}/32\"] }}"
        )?;
    }
    Shaper::start_with(folder, &config, &api, token)
}
