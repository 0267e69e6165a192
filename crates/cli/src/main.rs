//! The `hotset` binary.

fn main() -> std::process::ExitCode {
    hotset_cli::run(std::env::args().collect(), None).into()
}
