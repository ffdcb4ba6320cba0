// SPDX-License-Identifier: Apache-2.0
//! The configuration file again, by SIGHUP or `POST /v1/reload`.
//!
//! Invariant: the file is validated as at start before anything changes, and one that is not good changes nothing.
//! What can change while packets flow is put in force: log level, token and TLS, DSCP rules and what happens to unknown
//! traffic, port rates, profiles that are new or different. Everything else is named as needing a restart, again at each reload until one comes.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use control_api::{Catalogue, Options, Protection, Refused, Reload, Reloaded, StartError};
use dataplane::{Handle, ProfilesError};
use engine::Profiles;
use model::config::Change;
use model::{Config, Problem, Problems};
use tracing::{error, info};

use super::manager;
use crate::log::Logging;

/// What reloads a running shaper.
pub(super) struct Reloader {
    path: PathBuf,
    logging: Logging,
    handle: Handle,
    protection: Protection,
    profiles: Catalogue,
    /// The configuration in force; whoever holds it reloads.
    in_force: Mutex<Config>,
}

impl Reloader {
    pub(super) fn new(
        path: PathBuf,
        logging: Logging,
        handle: Handle,
        (protection, profiles): (Protection, Catalogue),
        in_force: Config,
    ) -> Self {
        Self { path, logging, handle, protection, profiles, in_force: Mutex::new(in_force) }
    }

    fn put_in_force(&self, now: &mut Config, new: &Config) -> Result<Reloaded, Refused> {
        let kept = renew(&self.protection, now, new).err();
        if let Some(error) = kept.as_ref().filter(|_| now.api.listen == new.api.listen) {
            return Err(Refused(Problems(vec![of_api(&self.path, error)])));
        }
        let profiles = self.follow_profiles(now, new);
        let (mut done, live) = sort(now, new, Able { api: kept.is_none(), profiles: profiles.is_ok() });
        done.notes.extend(profiles.err().map(|error| format!("profile: {error}")));
        done.notes.extend(kept.map(|error| format!("token and certificate stay as they are: {error}")));
        if live.classify {
            self.handle.set_classify(&new.classify);
        }
        for &port in &live.rates {
            self.handle.set_port_rate(port, new.ports.get(port).and_then(|port| port.rate_bps));
        }
        if now.log != new.log {
            done.notes.extend(self.logging.set(new.log));
        }
        adopt(now, new, &live);
        Ok(done)
    }
}

impl Reloader {
    /// Profiles that are new or different, and then those who have them.
    fn follow_profiles(&self, now: &Config, new: &Config) -> Result<(), ProfilesError> {
        if now.profiles != new.profiles {
            let followed = self.handle.set_profiles(&new.profiles)?;
            info!(queues = followed, "profiles changed");
            self.profiles.put(&new.profiles);
        }
        Ok(())
    }
}

/// Token and certificate for the listener that is open, which stays where it is whatever the file says. The file may
/// leave out what that one needs.
fn renew(protection: &Protection, now: &Config, new: &Config) -> Result<(), StartError> {
    protection.renew(&Options { listen: now.api.listen, ..Options::from_config(new) })
}

impl Reload for Reloader {
    fn reload(&self) -> Result<Reloaded, Refused> {
        let mut now = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        manager::reloading();
        let done = load(&self.path).map_err(Refused).and_then(|new| self.put_in_force(&mut now, &new));
        manager::ready(&report(&self.path, &done));
        done
    }
}

/// Logs it; one line for the service manager.
fn report(path: &Path, done: &Result<Reloaded, Refused>) -> String {
    match done {
        Ok(Reloaded { applied, restart_needed, notes }) => {
            for Change { key, from, to } in applied {
                info!(key, %from, %to, "reloaded");
            }
            for Change { key, from, to } in restart_needed {
                info!(key, %from, %to, "a restart is needed to put this in force");
            }
            for note in notes {
                info!("{note}");
            }
            let (done, left) = (applied.len(), restart_needed.len());
            format!("forwarding; {} reloaded: {done} changed, {left} need a restart", path.display())
        }
        Err(Refused(Problems(problems))) => {
            for problem in problems {
                error!("not reloaded, all goes on as it was: {problem}");
            }
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            format!("forwarding; not reloaded: {first}")
        }
    }
}

/// Reads and validates as at start.
fn load(path: &Path) -> Result<Config, Problems> {
    let new = Config::load(path)?;
    let name = path.display().to_string();
    new.check_ports(&name)?;
    let whole = |message: String| Problem { file: name.clone(), line: 0, key: "profile".to_owned(), message };
    Profiles::new(&new.profiles).map_err(|error| Problems(vec![whole(error.to_string())]))?;
    let api = control_api::Server::check(&Options::from_config(&new));
    let problems: Vec<_> = api.iter().map(|error| of_api(path, error)).collect();
    if problems.is_empty() { Ok(new) } else { Err(Problems(problems)) }
}

/// A problem with token, certificate or key, at the line of the key that names the file.
fn of_api(path: &Path, error: &StartError) -> Problem {
    let message = error.to_string();
    let key =
        ["api.token_file", "api.tls_cert", "api.tls_key"].into_iter().find(|key| message.starts_with(key));
    let bare = key.and_then(|key| key.strip_prefix("api."));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let here = |line: &str| bare.is_some_and(|bare| line.split('=').next().is_some_and(|k| k.trim() == bare));
    let line = text.lines().position(here).map_or(0, |index| index + 1);
    let message = key.and_then(|key| message.strip_prefix(key)).unwrap_or(&message);
    let message = message.trim_start_matches([' ', '=']).to_owned();
    Problem { file: path.display().to_string(), line, key: key.unwrap_or("api").to_owned(), message }
}

/// What of a change the data plane is to be told.
#[derive(Debug, Default, PartialEq)]
struct Live {
    api: bool,
    profiles: bool,
    classify: bool,
    /// Ports whose rate changes.
    rates: Vec<usize>,
}

/// What has been put in force already.
#[derive(Clone, Copy)]
struct Able {
    /// Token and certificate.
    api: bool,
    /// Profiles, but for those that are gone from the file.
    profiles: bool,
}

/// What can be put in force now or has been, and what cannot.
fn sort(now: &Config, new: &Config, able: Able) -> (Reloaded, Live) {
    let Able { api, profiles } = able;
    let same_ports = now.ports.len() == new.ports.len()
        && now.ports.iter().zip(&new.ports).all(|(a, b)| a.name == b.name && a.device == b.device);
    let (mut done, mut live) = (Reloaded::default(), Live { api, profiles, ..Live::default() });
    for change in now.changes(new) {
        let rate_of = change.key.strip_prefix("port[").and_then(|rest| rest.strip_suffix("].rate_bps"));
        let rate_of = rate_of.and_then(|index| index.parse::<usize>().ok()).filter(|_| same_ports);
        let is = |prefix: &str| change.key.starts_with(prefix);
        if is("subscriber") || is("parent") {
            let note = "subscriber, parent: these records seed a store that is new; the store's own are changed over HTTP";
            if !done.notes.iter().any(|known| known == note) {
                done.notes.push(note.to_owned());
            }
            continue;
        }
        let classify = change.key == "classify.unknown" || is("classify.rules.");
        live.classify |= classify;
        live.rates.extend(rate_of);
        let protection = api && is("api.") && change.key != "api.listen";
        let profile = profiles && is("profile.") && !change.to.is_null() && !gone(&change.key, now, new);
        if classify || rate_of.is_some() || change.key == "log.level" || protection || profile {
            done.applied.push(change);
        } else {
            done.restart_needed.push(change);
        }
    }
    (done, live)
}

/// Whether a key of a profile is about one that the file has no more.
fn gone(key: &str, now: &Config, new: &Config) -> bool {
    let mut lost = now.profiles.keys().filter(|name| !new.profiles.contains_key(*name));
    lost.any(|name| key == format!("profile.{name}"))
}

/// Notes what is in force from now on.
fn adopt(now: &mut Config, new: &Config, live: &Live) {
    now.log = new.log;
    if live.api {
        now.api = model::config::Api { listen: now.api.listen, ..new.api.clone() };
    }
    let unknown_bps = now.classify.unknown_bps;
    now.classify = model::config::Classify { unknown_bps, ..new.classify.clone() };
    for &port in &live.rates {
        if let (Some(port), Some(new)) = (now.ports.get_mut(port), new.ports.get(port)) {
            port.rate_bps = new.rate_bps;
        }
    }
    if live.profiles {
        now.profiles.extend(new.profiles.clone());
    }
    // seeds take no part once the store has them
    now.parents.clone_from(&new.parents);
    now.subscribers.clone_from(&new.subscribers);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[[port]]\nname=\"c\"\ndevice=\"net_null0\"\nrole=\"core\"\npeer=\"a\"\nrate_bps=1000000\n\
                        [[port]]\nname=\"a\"\ndevice=\"net_null1\"\nrole=\"access\"\npeer=\"c\"\n";

    const ALL: Able = Able { api: true, profiles: true };

    fn config(text: &str) -> Config {
        Config::parse("f", text).unwrap()
    }

    fn keys(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.key.as_str()).collect()
    }

    #[test]
    fn what_can_change_does_and_the_rest_stays_named_until_a_restart() {
        let mut now = config(FILE);
        let more = "mtu=1500\n[log]\nlevel=\"debug\"\n[classify]\nunknown=\"drop\"\nunknown_bps=64000\n\
                    [classify.rules]\nl4s_dscp=[46]\n[api]\ntoken_file=\"t\"\n[profile.default]\ntarget_us=5000\n";
        let new = config(&(FILE.replace("1000000", "2000000") + more));
        let (done, live) = sort(&now, &new, ALL);
        let applied = [
            "api.token_file",
            "classify.rules.l4s_dscp",
            "classify.unknown",
            "log.level",
            "port[0].rate_bps",
            "profile.default.target_us",
        ];
        let left = ["classify.unknown_bps", "port[1].mtu"];
        assert_eq!(keys(&done.applied), applied);
        assert_eq!(keys(&done.restart_needed), left);
        assert_eq!(live, Live { api: true, profiles: true, classify: true, rates: vec![0] });
        adopt(&mut now, &new, &live);
        let (again, live) = sort(&now, &new, ALL);
        assert_eq!((keys(&again.applied), keys(&again.restart_needed)), (vec![], left.to_vec()));
        assert_eq!(live, Live { api: true, profiles: true, ..Live::default() });
    }

    #[test]
    fn another_listener_waits_for_a_restart_and_token_and_certificate_do_not() {
        let mut now = config("[api]\ntoken_file=\"t\"\n");
        let new = config("[api]\nlisten=\"127.0.0.1:1\"\ntoken_file=\"u\"\n");
        let (done, live) = sort(&now, &new, ALL);
        assert_eq!(keys(&done.applied), ["api.token_file"]);
        assert_eq!(keys(&done.restart_needed), ["api.listen"]);
        let listen = now.api.listen;
        adopt(&mut now, &new, &live);
        assert_eq!((now.api.listen, &now.api.token_file), (listen, &new.api.token_file));
        // where the file has nothing to protect the open one with, all of it waits
        let (done, live) = sort(
            &config("[api]\ntoken_file=\"t\"\n"),
            &config("[api]\nlisten=\"127.0.0.1:1\"\n"),
            Able { api: false, ..ALL },
        );
        assert_eq!(keys(&done.restart_needed), ["api.listen", "api.token_file"]);
        assert!(done.applied.is_empty() && !live.api);
    }

    #[test]
    fn profiles_come_and_change_but_go_with_a_restart() {
        let mut now = config("[profile.old]\naqm=\"pie\"\n[profile.kept]\nlimit_us=100000\n");
        let new = config("[profile.kept]\nlimit_us=200000\n[profile.new]\naqm=\"fq\"\n");
        let (done, live) = sort(&now, &new, ALL);
        assert_eq!(keys(&done.applied), ["profile.kept.limit_us", "profile.new"]);
        assert_eq!(keys(&done.restart_needed), ["profile.old"]);
        let (refused, _) = sort(&now, &new, Able { profiles: false, ..ALL });
        assert!(refused.applied.is_empty() && refused.restart_needed.len() == 3);
        adopt(&mut now, &new, &live);
        assert!(["old", "kept", "new"].iter().all(|name| now.profiles.contains_key(*name)));
        assert_eq!(now.profiles["kept"].limit_us, 200_000);
        assert_eq!(keys(&sort(&now, &new, ALL).0.restart_needed), ["profile.old"]);
    }

    #[test]
    fn ports_that_are_other_ports_keep_their_rates() {
        let now = config(FILE);
        let new = config(&FILE.replace("net_null0", "net_null7").replace("1000000", "2000000"));
        let (done, live) = sort(&now, &new, ALL);
        assert_eq!(keys(&done.restart_needed), ["port[0].device", "port[0].rate_bps"]);
        assert!(live.rates.is_empty());
    }

    #[test]
    fn seeds_are_a_note() {
        let seed = "[[subscriber]]\nid=\"x\"\ndown_bps=64000\nup_bps=64000\nmatch={ipv4=[\"10.0.0.1\"]}\n";
        let parent = "[[parent]]\nid=\"p\"\ndown_bps=64000\nup_bps=64000\n";
        let (done, _) = sort(&config(""), &config(&format!("{seed}{parent}")), ALL);
        assert!(done.applied.is_empty() && done.restart_needed.is_empty());
        assert_eq!(done.notes.len(), 1);
    }

    #[test]
    fn a_token_that_cannot_be_read_is_found_at_its_line() {
        let path = std::env::temp_dir().join(format!("sluice-reload-{}", std::process::id()));
        std::fs::write(&path, format!("{FILE}[api]\ntoken_file = \"/no/such\"\n")).unwrap();
        let problem = load(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(problem.contains(":13: api.token_file: /no/such: "), "{problem}");
    }
}
