//! What the near end has done for a boot loader.

/// Reads and connections that ended in the machine, and their bytes.
#[derive(Default)]
pub(super) struct Counts {
    /// Files that the loader read by TFTP, to their end or not.
    pub reads: u64,
    /// Connections that it opened, and the server accepted.
    pub connections: u64,
    /// Bytes that the loader has acknowledged.
    pub received: u64,
    /// Bytes of its connections' other direction.
    pub sent: u64,
}

/// The loader has returned. Where it ends the boot services instead, nothing may be written any more.
impl Drop for Counts {
    fn drop(&mut self) {
        let Self {
            reads,
            connections,
            received,
            sent,
        } = self;
        if *reads + *connections > 0 {
            log::info!(
                "near end: {reads} reads by TFTP and {connections} connections, {received} bytes to the boot loader, {sent} from it"
            );
        }
    }
}
