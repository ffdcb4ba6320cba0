// SPDX-License-Identifier: Apache-2.0
//! The listening server: threads of its own, a bounded number of connections, a clean end. Where all places are
//! taken, the connection longest without a request makes room for the one that comes.
//!
//! Invariant: nothing that happens here reaches the rest of the process. The runtime lives on its own threads; a
//! panic in a handler ends in a 500, a panic in a connection ends that connection, and if a whole thread dies the
//! caller sees it in [`ServerHandle::failure`] and goes on forwarding.
//!
//! HTTP/1.1 only, on purpose: a connection then holds one request at a time, so the bound on connections bounds
//! all a client can hold.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::app::{App, BLOCKING, Parts};
use crate::guard::Guard;
use crate::lobby::{Answer, Lobby, Seat};
use crate::options::{Limits, Options};
use crate::protection::{self, Protection};
use crate::reload::{Reload, Reloader};
use crate::rules::{Catalogue, Rules};
use crate::shaper::Shaper;
use crate::store::{Store, StoreError};
use crate::writer::{Postman, Writer, Writes};
use crate::{history, routes};

/// Worker threads of the runtime: control work, never packets. All of the control side shares one CPU, where a second
/// would only be woken for nothing; what takes long goes to threads of its own (`App::work`).
const WORKERS: usize = 1;
/// What calls into the data plane that are still under way get at the end.
const ABANDON: Duration = Duration::from_millis(500);
/// Between two tries when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks for a connection that may go, while one waits for room and all have requests under way.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Why the server did not start: one sentence.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A listener that others reach, without what protects it.
    #[error(
        "api.listen = {listen}: anything but loopback needs token_file, tls_cert and tls_key; missing: {missing}"
    )]
    Exposed {
        /// The address.
        listen: SocketAddr,
        /// What is missing.
        missing: String,
    },
    /// Only one of certificate and key.
    #[error("api: tls_cert and tls_key come together; {0} is missing")]
    HalfTls(&'static str),
    /// The address.
    #[error("api.listen = {listen}: {reason}; choose an address of this machine and a port that is free")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        reason: String,
    },
    /// The token file.
    #[error("api.token_file = {path}: {reason}; it must name a file with the token that this user may read")]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Certificate or key.
    #[error("{key} = {path}: {reason}")]
    Tls {
        /// `api.tls_cert` or `api.tls_key`.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A record of the configuration that cannot go into the store.
    #[error("[[{table}]] {id}: {reason}")]
    Seed {
        /// `subscriber` or `parent`.
        table: &'static str,
        /// The record.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// Aggregates of the store.
    #[error("the parents of the store are not taken: {0}")]
    Parents(String),
    /// Threads or runtime.
    #[error("the HTTP threads cannot start: {0}")]
    Threads(String),
}

/// The HTTP server of a shaper.
#[derive(Clone, Copy, Debug)]
pub struct Server;

impl Server {
    /// Everything that would keep [`start`](Self::start) from protecting the listener: lacking or bad token,
    /// certificate, key. Reads those files and opens nothing else.
    pub fn check(options: &Options) -> Vec<StartError> {
        protection::problems(options)
    }

    /// Replays the store into `shaper`, then listens. Returns when both are done; requests are answered from then
    /// on by threads of its own.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing listens then.
    #[expect(clippy::needless_pass_by_value, reason = "they are the server's from then on")]
    pub fn start(
        options: Options,
        shaper: Arc<dyn Shaper>,
        store: Store,
    ) -> Result<ServerHandle, StartError> {
        let protection = Protection::new(&options)?;
        let listener = bind(options.listen)?;
        let listen_error =
            |error: std::io::Error| StartError::Listen { listen: options.listen, reason: error.to_string() };
        let address = listener.local_addr().map_err(listen_error)?;
        let (stop, stopped) = watch::channel(false);
        let reload = Arc::<Reloader>::default();
        let rules = Rules::new(&options);
        let profiles = rules.profiles.clone();
        let loaded = Writer::load(&options, rules.clone(), Arc::clone(&shaper), store)?;
        let (directory, events) = (Arc::clone(&loaded.directory), loaded.events.clone());
        let parents = Arc::clone(&loaded.parents);
        let (limits, start_hook) = (options.limits, options.thread_start);
        let (thread, writes, postman) = loaded.spawn(start_hook).map_err(threads)?;
        let app = App::new(
            &options,
            rules,
            Parts {
                shaper,
                directory,
                parents,
                writes: writes.clone(),
                events,
                protection: protection.clone(),
                reload: Arc::clone(&reload),
                stopped: stopped.clone(),
            },
        );
        let mut handle = ServerHandle {
            address,
            stop,
            writes,
            protection: protection.clone(),
            profiles,
            reload,
            http: None,
            writer: Some(thread),
        };
        let door = Door { router: routes::router(Arc::clone(&app)), protection, limits, stopped };
        handle.http = Some(spawn(listener, (app, postman), door, start_hook)?);
        tracing::info!(%address, "HTTP listens");
        Ok(handle)
    }
}

/// The running server. Dropping it shuts it down.
pub struct ServerHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    writes: Writes,
    protection: Protection,
    profiles: Catalogue,
    reload: Arc<Reloader>,
    http: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ServerHandle {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Token and TLS, for a reload to renew.
    pub fn protection(&self) -> Protection {
        self.protection.clone()
    }

    /// The profiles that records may name, for a reload to add to.
    pub fn profiles(&self) -> Catalogue {
        self.profiles.clone()
    }

    /// What `POST /v1/reload` does from now on; until then it says that it is too early.
    pub fn on_reload(&self, reload: Arc<dyn Reload>) {
        // a second one could only be the same
        let _ = self.reload.set(reload);
    }

    /// What stopped working, if anything did; forwarding does not depend on it.
    pub fn failure(&self) -> Option<&'static str> {
        let ended = |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        if ended(&self.http) {
            Some("the HTTP thread has ended")
        } else if ended(&self.writer) {
            Some("the thread that writes the store has ended")
        } else {
            None
        }
    }

    /// Takes no more connections, lets requests finish for [`Limits::drain`], closes the store.
    pub fn shutdown(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        self.stop.send_replace(true);
        if let Some(http) = self.http.take() {
            join(http);
        }
        if let Some(writer) = self.writer.take() {
            self.writes.stop();
            join(writer);
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

/// See [`Options::thread_start`].
pub(crate) fn run_hook(hook: Option<fn()>) {
    if let Some(hook) = hook {
        hook();
    }
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or("a thread").to_owned();
    if thread.join().is_err() {
        tracing::error!("{name} had panicked");
    }
}

fn threads(error: impl std::fmt::Display) -> StartError {
    StartError::Threads(error.to_string())
}

fn bind(listen: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| StartError::Listen { listen, reason: error.to_string() })
}

fn spawn(
    listener: TcpListener,
    (app, postman): (Arc<App>, Postman),
    door: Door,
    start_hook: Option<fn()>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_name("sluice-http")
        .on_thread_start(move || run_hook(start_hook))
        .enable_all()
        .build()
        .map_err(threads)?;
    runtime.spawn(history::keep(app));
    runtime.spawn(postman.run());
    std::thread::Builder::new()
        .name("sluice-http".to_owned())
        .spawn(move || {
            run_hook(start_hook);
            runtime.block_on(accept_loop(listener, Arc::new(door)));
            runtime.shutdown_timeout(ABANDON);
        })
        .map_err(threads)
}

/// Returns once the server stops.
pub(crate) async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // An error means that the handle is gone, which stops the server as well.
    drop(stopped.wait_for(|stop| *stop).await);
}

/// What every connection needs.
struct Door {
    router: Router,
    protection: Protection,
    limits: Limits,
    stopped: watch::Receiver<bool>,
}

async fn accept_loop(listener: TcpListener, door: Arc<Door>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "HTTP cannot listen"),
    };
    let places = door.limits.connections.min(files() / 2).max(1);
    let (room, lobby) = (Arc::new(Semaphore::new(places)), Arc::new(Lobby::default()));
    let mut stopped = door.stopped.clone();
    loop {
        let accepted = tokio::select! {
            () = stopping(&mut stopped) => break,
            accepted = accept(&listener, &room, &lobby) => accepted,
        };
        let Some((stream, permit)) = accepted else {
            continue;
        };
        let (door, seat) = (Arc::clone(&door), Seat::take(&lobby));
        tokio::spawn(async move {
            tokio::select! {
                () = door.connection(stream, &seat) => {}
                () = seat.asked_to_leave() => tracing::debug!("an idle connection made room"),
            }
            drop(permit);
        });
    }
    drop(listener);
    let all = u32::try_from(places).unwrap_or(u32::MAX);
    let drained = tokio::time::timeout(door.limits.drain, room.acquire_many(all)).await;
    if drained.is_err() {
        tracing::warn!("HTTP requests were still open at the end");
    }
}

/// Files this process may have open, of which other parts need some; where that is not told, the usual.
fn files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| if soft == "unlimited" { Some(usize::MAX) } else { soft.parse().ok() })
        .unwrap_or(1024)
}

/// Takes one connection and finds it room; what comes meanwhile stays in the kernel's backlog.
async fn accept(
    listener: &tokio::net::TcpListener,
    room: &Arc<Semaphore>,
    lobby: &Lobby,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, find_room(room, lobby).await?)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            lobby.make_room();
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn find_room(room: &Arc<Semaphore>, lobby: &Lobby) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        return Some(permit);
    }
    let mut place = std::pin::pin!(Arc::clone(room).acquire_owned());
    loop {
        lobby.make_room();
        if let Ok(permit) = tokio::time::timeout(ROOM_PAUSE, place.as_mut()).await {
            return permit.ok();
        }
    }
}

impl Door {
    async fn connection(&self, stream: TcpStream, seat: &Arc<Seat>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let Some(tls) = self.protection.tls() else {
            return self.serve(stream, seat).await;
        };
        match tokio::time::timeout(self.limits.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream, seat).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, seat: &Arc<Seat>) {
        let io = TokioIo::new(Guard::new(stream, self.limits.write_stall));
        let routes = TowerToHyperService::new(self.router.clone());
        let seat = Arc::clone(seat);
        let service = service_fn(move |request| {
            let (visit, answer) = (seat.visit(), routes.call(request));
            async move { answer.await.map(|answer| answer.map(|body| Body::new(Answer { body, _visit: visit }))) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_buf_size(self.limits.head_bytes)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let mut stopped = self.stopped.clone();
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = stopping(&mut stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
