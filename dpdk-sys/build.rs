// SPDX-License-Identifier: Apache-2.0
//! Binds the distribution's libdpdk: finds it by pkg-config, compiles `shim.c`, generates the bindings.
//!
//! Works for DPDK 22.11 (Debian 12) and 24.11 (Debian 13). Only what is named below is bound; what is in C a
//! macro, thread-local or inline goes through `shim.c`. Nothing is linked but the libraries whose functions
//! are bound; EAL loads the drivers itself.

use std::env;
use std::path::{Path, PathBuf};

/// Functions bound directly: exported by the shared libraries, no inlines.
const FUNCTIONS: &[&str] = &[
    "rte_eal_init",
    "rte_eal_cleanup",
    "rte_eal_get_runtime_dir",
    "rte_eal_remote_launch",
    "rte_eal_get_lcore_state",
    "rte_version",
    "rte_get_tsc_hz",
    "rte_lcore_is_enabled",
    "rte_get_main_lcore",
    "rte_lcore_to_socket_id",
    "rte_thread_register",
    "rte_thread_unregister",
    "rte_pktmbuf_pool_create",
    "rte_pktmbuf_free_bulk",
    "rte_mempool_free",
    "rte_mempool_avail_count",
    "rte_mempool_obj_iter",
    "rte_ring_create",
    "rte_ring_free",
    "rte_eth_dev_get_port_by_name",
    "rte_eth_dev_info_get",
    "rte_eth_dev_configure",
    "rte_eth_dev_adjust_nb_rx_tx_desc",
    "rte_eth_rx_queue_setup",
    "rte_eth_tx_queue_setup",
    "rte_eth_dev_start",
    "rte_eth_dev_stop",
    "rte_eth_dev_close",
    "rte_eth_dev_set_mtu",
    "rte_eth_dev_get_mtu",
    "rte_eth_dev_set_link_up",
    "rte_eth_dev_set_link_down",
    "rte_eth_dev_socket_id",
    "rte_eth_promiscuous_enable",
    "rte_eth_stats_get",
    "rte_eth_macaddr_get",
    "rte_eth_call_rx_callbacks",
    "rte_eth_call_tx_callbacks",
    "rte_eth_from_rings",
    // What dpdk-pdump does to a port; for tests.
    "rte_eth_add_rx_callback",
    "rte_eth_add_tx_callback",
    "shim_.*",
];

/// Structures whose fields are read or written from Rust.
const TYPES: &[&str] = &[
    "rte_eth_conf",
    "rte_eth_dev_info",
    "rte_eth_rxconf",
    "rte_eth_txconf",
    "rte_eth_stats",
    "rte_ether_addr",
    "rte_eth_fp_ops",
];

/// Structures reached only through pointers: their fields are nobody's business here.
const OPAQUE: &[&str] =
    &["rte_mempool", "rte_ring", "rte_device", "rte_eth_rxseg_split", "rte_eth_rxtx_callback"];

/// Libraries that hold the functions above. `rte_log` became a library of its own after 22.11.
const LIBRARIES: &[&str] = &["rte_eal", "rte_log", "rte_mempool", "rte_mbuf", "rte_ring", "rte_ethdev"];

/// Driver libraries with a function of their own that is bound; pkg-config does not name drivers.
const DRIVERS: &[&str] = &["rte_net_ring", "rte_bus_vdev"];

/// The least CPU that DPDK's headers accept (SSE4.2), and the least that Sluice supports.
const MARCH: &str = "-march=x86-64-v2";

fn main() {
    for file in ["build.rs", "wrapper.h", "shim.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let dpdk = pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .probe("libdpdk")
        .unwrap_or_else(|e| {
            panic!("libdpdk 22.11 or newer is needed (Debian: apt install libdpdk-dev dpdk-dev): {e}")
        });
    link(&dpdk);
    compile_shim(&dpdk.include_paths);
    bind(&dpdk.include_paths);
}

fn link(dpdk: &pkg_config::Library) {
    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for library in LIBRARIES.iter().filter(|l| dpdk.libs.iter().any(|found| found == *l)) {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    for library in DRIVERS {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:version={}", dpdk.version);
}

fn compile_shim(includes: &[PathBuf]) {
    cc_build::Build::new()
        .file("shim.c")
        .includes(includes)
        .flag("-include")
        .flag("rte_config.h")
        .flag(MARCH)
        .flag_if_supported("-Wno-address-of-packed-member")
        .define("_GNU_SOURCE", None)
        .opt_level(3)
        .compile("sluice_dpdk_shim");
}

fn bind(includes: &[PathBuf]) {
    point_at_libclang();
    let mut builder = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(["-include", "rte_config.h", MARCH, "-D_GNU_SOURCE"])
        .clang_args(includes.iter().map(|path| format!("-I{}", path.display())))
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        // Thread-local variables: a binding links without a word and crashes when used.
        .blocklist_item("per_lcore_.*")
        // Our own view of it, checked against C's at compile time: see src/mbuf.rs.
        .blocklist_type("rte_mbuf.*")
        // The insides of what is only pointed at.
        .blocklist_type("rte_mempool_(_|cache|objhdr|mem).*")
        .blocklist_type("(__)?rte_ring_.*")
        .blocklist_type("rte_memzone.*")
        .raw_line("pub use crate::mbuf::Mbuf as rte_mbuf;")
        .allowlist_var("K_.*")
        .allowlist_var("rte_eth_fp_ops")
        .derive_default(true)
        .generate_comments(false)
        .layout_tests(true)
        .use_core();
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    for name in OPAQUE {
        builder = builder.blocklist_type(name).raw_line(format!(
            "#[repr(C)]\n#[derive(Debug)]\npub struct {name} {{\n    _private: [u8; 0],\n}}"
        ));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    let bindings =
        builder.generate().expect("bindgen reads DPDK's headers (Debian: apt install libclang-dev clang)");
    bindings.write_to_file(out).expect("the build folder can be written");
}

/// With several LLVMs installed bindgen may load one libclang and another's headers. Debian 12's `clang` is 14,
/// so its libclang is the one to load; elsewhere (Debian 13 has no such folder) bindgen finds its own.
fn point_at_libclang() {
    const DEBIAN_12: &str = "/usr/lib/llvm-14/lib";
    println!("cargo:rerun-if-env-changed=LIBCLANG_PATH");
    if env::var_os("LIBCLANG_PATH").is_none() && Path::new(DEBIAN_12).is_dir() {
        // SAFETY: a build script's only thread; nothing reads the environment meanwhile.
        unsafe { env::set_var("LIBCLANG_PATH", DEBIAN_12) };
    }
}
