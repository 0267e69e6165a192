//! Compiles the messages of `proto/` with no compiler installed.

use std::error::Error;

const PROTOS: [&str; 2] = ["../../proto/hotset.proto", "../../proto/state.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let files = protox::compile(PROTOS, ["../../proto"])?;
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    // They hold credentials; `proto.rs` writes ones that leave them out.
    config.skip_debug(["OpenDataset", "OpenJob"]);
    for message in ["Stats", "ServerStats", "JobStats", "EpochStats", "RankWait", "Region", "PackageStats"] {
        config.type_attribute(format!(".hotset.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    config.compile_fds(files)?;
    Ok(())
}
