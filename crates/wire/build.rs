//! Compiles the messages of `proto/` with no compiler installed.

use std::error::Error;

use prost_build::Config;

const FOLDER: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut config = Config::new();
    config.btree_map(["."]);
    // States hold settings, which are the protocol's.
    config.extern_path(".hotset.v1", "crate::proto");
    config.compile_fds(protox::compile(["state.proto"], [FOLDER])?)?;

    let mut config = Config::new();
    config.btree_map(["."]);
    config.extern_path(".hotset.v1", "crate::proto");
    config.compile_fds(protox::compile(["nodes.proto"], [FOLDER])?)?;

    let mut config = Config::new();
    config.btree_map(["."]);
    // They hold credentials; `proto.rs` writes ones that leave them out.
    config.skip_debug(["OpenDataset", "OpenJob"]);
    for message in [
        "Stats",
        "ServerStats",
        "SharedStats",
        "ContentStats",
        "NodeStats",
        "PeerStats",
        "JobStats",
        "EpochStats",
        "RankWait",
        "Region",
        "PackageStats",
    ] {
        config.type_attribute(format!(".hotset.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    let by_name = "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default, deny_unknown_fields)]";
    config.type_attribute(".hotset.v1.JobSettings", by_name);
    config.compile_fds(protox::compile(["hotset.proto"], [FOLDER])?)?;
    Ok(())
}
