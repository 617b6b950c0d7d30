//! How many blocks are under way: the window that is asked for, one that is tried, and one that varies.

use wireboot_wire::tftp::{DEFAULT_BLOCK_SIZE, TransferOptions};

use super::transfer::{Transfer, Trial};

/// Largest window asked for, in blocks. Twice as many bring nothing more, and a burst must fit the buffers of the
/// switches on the way.
pub(super) const MAX_WINDOW: u16 = 256;
/// The same where blocks are longer than the MTU: each is many frames.
pub(super) const MAX_LONG_WINDOW: u16 = 8;
/// Windows after which one that was tried is known to fit.
const TRIAL: u64 = 4;
/// The first window that varies, and the largest, in blocks: as Windows' boot programs have them.
const FIRST_VARIABLE_WINDOW: u16 = 4;
const LARGEST_VARIABLE_WINDOW: u16 = 64;

/// The windows to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// What the card's buffers are known to take; it slides where the server knows that.
    #[default]
    Own,
    /// So many blocks.
    Of(u16),
    /// What varies, by [`VariableWindow`](wireboot_wire::tftp::VariableWindow): doubled with each window that has come, halved for each that was lost. The transfer fails where
    /// the server does not know it.
    Variable,
}

/// Acknowledgements of its multiples slide a window of so many blocks on: half of it is on its way while the other half is acknowledged.
pub(super) fn slide(wanted: Window, window: u16) -> Option<u16> {
    (window >= 4 && wanted == Window::Own).then(|| 1 << (window / 2).ilog2())
}

/// Whether the file has more than a window, which was asked for with longer blocks, and granted.
pub(super) fn window_is_short(asked: &TransferOptions, granted: &TransferOptions) -> bool {
    let block = u64::from(granted.block_size.unwrap_or(DEFAULT_BLOCK_SIZE));
    let window = granted.window_size.unwrap_or(1);
    let more = |size| size > block * u64::from(window);
    asked.window_size == Some(window) && granted.transfer_size.is_none_or(more)
}

impl Transfer {
    /// Where it is not known whether a window arrives, the first ones show it: one of `long` blocks, or one that `probes` the receive buffers.
    pub(super) fn begin_trial(&mut self, long: bool, probes: bool) {
        let trial = (long || probes) && self.window > 1;
        self.trial = trial.then_some(Trial {
            end: TRIAL * u64::from(self.window),
            retransmissions: self.retransmissions,
            long,
        });
    }

    /// Whether frames were lost in the first windows.
    pub(super) fn trial_failed(&mut self) -> bool {
        let next = self.next;
        self.trial.take_if(|trial| next > trial.end);
        let before = self.trial.as_ref().map(|trial| trial.retransmissions);
        before.is_some_and(|before| self.retransmissions > before)
    }

    /// Has the window vary from now on.
    pub(super) fn vary(&mut self) {
        self.varies = true;
        self.window = FIRST_VARIABLE_WINDOW;
    }

    /// The window after one that was lost.
    pub(super) fn narrow(&mut self) {
        if self.varies {
            self.window = (self.window / 2).max(1);
        }
    }

    /// The window after one that has come whole.
    pub(super) fn widen(&mut self) {
        if self.varies {
            self.window = (self.window * 2).min(LARGEST_VARIABLE_WINDOW);
        }
    }

    /// The window to tell with an acknowledgement, where it varies.
    pub(super) fn told_window(&self) -> Option<u8> {
        u8::try_from(self.window).ok().filter(|_| self.varies)
    }
}
