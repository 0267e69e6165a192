//! Compiles what is spoken over gRPC, with no compiler installed.

use std::error::Error;

const FOLDER: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let etcd = protox::compile(["etcd.proto"], [FOLDER])?;
    // It holds a password.
    tonic_prost_build::configure()
        .build_server(false)
        .skip_debug(["AuthenticateRequest"])
        .compile_fds(etcd)?;
    let peers = protox::compile(["peers.proto"], [FOLDER])?;
    tonic_prost_build::configure().bytes(".hotset.peers").compile_fds(peers)?;
    Ok(())
}
