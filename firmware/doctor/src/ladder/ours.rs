//! The rungs of our protocols: what a boot loader gets over wireboot's network, by its calls.

use super::files::Whose;
use super::table::Kind;
use super::wire::Driver;
use super::{LadderRun, network};
use crate::error::Error;
use wireboot_boot::boot;
use wireboot_boot::error::Error as BootError;
use wireboot_boot::fetching::Fetcher;
use wireboot_boot::loader;
use wireboot_boot::settings::NetworkOwner;

const BASE_CODE: &str = "PXE base code, ours";
const HTTP: &str = "HTTP, ours";
const SNP: &str = "SNP, ours";

impl LadderRun<'_> {
    /// Files by the PXE base code and HTTP, and frames by SNP, all from the network that wireboot offers to a loader. The near end has no
    /// part in that: nothing of it is a loader's own TFTP or TCP.
    pub(crate) fn our_protocols(&mut self) -> Result<(), Error> {
        if ![BASE_CODE, HTTP, SNP]
            .iter()
            .any(|name| self.options.wants(name))
        {
            return Ok(());
        }
        let mut fetcher = Fetcher::new(network(&self.card, None, self.clock)?);
        fetcher.configure(self.leases.clone())?;
        let url = self.url("tftp", &self.options.file)?;
        let over = NetworkOwner::Wireboot;
        let network = fetcher.into_network();
        let path = boot::path(&network, self.origin, &url, over).ok_or(BootError::Nothing)?;
        let offered = loader::offer(network, self.origin, &url, &path, true)?;
        self.rung(Kind::Receive, BASE_CODE, |run| {
            run.by_base_code(Whose::Ours, &run.options.file)
        });
        if self.server.is_ipv4() {
            self.rung(Kind::Receive, HTTP, |run| {
                run.by_http_protocol(Whose::Ours, &run.options.file)
            });
        }
        if self.options.wants(SNP) {
            let mut driver = Driver(self.snp()?);
            self.wire(SNP, &mut driver);
        }
        drop(offered);
        Ok(())
    }
}
