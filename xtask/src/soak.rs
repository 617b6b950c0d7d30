//! Many boots, each with a fault, and many starts of the server beside others.

use crate::{apt, build, shell, test};
use anyhow::Result;

/// The test that starts the server beside each DHCP server that others wrote.
const BESIDE_OTHERS: &str = "no_addresses_are_given_beside_another_server";
/// What tells it how often; once without.
const STARTS: &str = "WIREBOOT_STARTS";

/// Builds, starts the server ten times beside each other one, then boots. Who gives arguments gets boots alone.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    apt::ensure(&[apt::BOOT, apt::EMBEDDING, apt::SERVERS, apt::CLIENTS].concat())?;
    build::programs()?;
    let starts = if arguments.is_empty() {
        many_starts()
    } else {
        Ok(())
    };
    build::lab("soak", arguments).and(starts)
}

fn many_starts() -> Result<()> {
    let arguments = ["--test", "dhcp", "--", "--exact", BESIDE_OTHERS];
    shell::run(test::tests(&arguments).env(STARTS, "10"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_test_is_there() {
        // Nothing else would tell: cargo runs no test of a wrong name, and succeeds.
        let text = include_str!("../../host/server/tests/dhcp.rs");
        assert!(text.contains(&format!("\nfn {BESIDE_OTHERS}() {{\n")));
        assert!(text.contains(&format!("env::var(\"{STARTS}\")")));
    }
}
