//! Calling an UNDI (UEFI 2.10, appendix E.3).

use crate::raw::undi::{
    PxeCdb, PxeEntryPoint, PxeOpcode, PxeStatcode, STATFLAGS_COMMAND_COMPLETE,
    STATFLAGS_STATUS_MASK,
};
use core::ptr;

/// An UNDI's commands to one interface.
#[derive(Clone, Copy)]
pub(crate) struct Commands {
    pub(crate) entry: PxeEntryPoint,
    pub(crate) number: u16,
}

impl Commands {
    /// Has a command executed, with parameters and room for results where it has such. Its flags, or why it failed.
    ///
    /// # Safety
    /// The entry point is that of an UNDI; addresses in the parameters are valid for what the command does with them.
    pub(crate) unsafe fn issue<P, R>(
        self,
        command: PxeOpcode,
        flags: u16,
        parameters: Option<&P>,
        results: Option<&mut R>,
    ) -> Result<u16, PxeStatcode> {
        let (cpb_size, cpb_addr) = match parameters {
            Some(block) => (size_of::<P>(), ptr::from_ref(block).expose_provenance()),
            None => (0, 0),
        };
        let (db_size, db_addr) = match results {
            Some(block) => (size_of::<R>(), ptr::from_mut(block).expose_provenance()),
            None => (0, 0),
        };
        let mut cdb = PxeCdb {
            op_code: command,
            op_flags: flags,
            cpb_size: cpb_size as u16,
            db_size: db_size as u16,
            cpb_addr: cpb_addr as u64,
            db_addr: db_addr as u64,
            stat_code: PxeStatcode::SUCCESS,
            stat_flags: 0,
            if_num: self.number,
            control: 0,
        };
        let cdb = &raw mut cdb;
        // SAFETY: the caller's promise; the blocks are as long as is told, and live until the call returns, before which commands that
        // are not to be queued are done.
        unsafe {
            (self.entry)(cdb.expose_provenance() as u64);
            let PxeCdb {
                stat_code,
                stat_flags,
                ..
            } = cdb.read();
            match stat_code {
                PxeStatcode::SUCCESS
                    if stat_flags & STATFLAGS_STATUS_MASK == STATFLAGS_COMMAND_COMPLETE =>
                {
                    Ok(stat_flags)
                }
                // Not done at all, or failed with no reason.
                PxeStatcode::SUCCESS => Err(PxeStatcode::INVALID_UNDI),
                code => Err(code),
            }
        }
    }

    /// Stops the interface. False when the device may still be running.
    ///
    /// # Safety
    /// As of [`Self::issue`].
    pub(crate) unsafe fn stop(self) -> bool {
        let done = |command| {
            // SAFETY: the caller's promise; there are no parameters.
            let result = unsafe { self.issue::<(), ()>(command, 0, None, None) };
            matches!(
                result,
                Ok(_) | Err(PxeStatcode::NOT_INITIALIZED | PxeStatcode::NOT_STARTED)
            )
        };
        let stopped = done(PxeOpcode::SHUTDOWN);
        let _ = done(PxeOpcode::STOP);
        stopped
    }
}
