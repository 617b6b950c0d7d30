//! The server alone: `cargo run -p wireboot-server --example serve -- DIR ...`.

use clap::Parser;
use wireboot_server::cli::{ServeArgs, run};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    serve: ServeArgs,
}

fn main() -> anyhow::Result<()> {
    run(Arguments::parse().serve)
}
