//! How long a server is waited for.

use alloc::rc::Rc;
use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::net::IpAddr;
use core::pin::pin;
use core::task::Poll;

use wireboot_net::{Duration, Instant, Stack};

use super::error::Problem;
use super::limits::SILENCE;
use crate::pace::{Floor, Pace};

/// The same on a new connection whose MSS allows large packets: the path may drop those.
const SUSPICION: Duration = Duration::from_secs(4);
/// Bytes after which a connection counts as proven: large packets have come by then.
const PROVEN: u64 = 64 * 1024;
/// MTU of each path of IPv6, and of most tunnels (RFC 8200 section 5).
const SAFE_MTU: u16 = 1280;

/// The time limits of one response: silence and the floor.
pub(crate) struct Patience<'a> {
    stack: &'a Stack,
    server: IpAddr,
    pace: Pace,
}

impl<'a> Patience<'a> {
    /// For a file of which `position` bytes are there.
    pub(super) fn new(stack: &'a Stack, server: IpAddr, floor: Floor, position: u64) -> Self {
        Self {
            stack,
            server,
            pace: Pace::new(floor, position, stack.now()),
        }
    }

    /// Runs `work` of this machine, whose time does not count.
    pub(super) async fn pause<T>(&mut self, work: impl Future<Output = T>) -> T {
        let then = self.stack.now();
        let result = work.await;
        self.pace.paused(then, self.stack.now());
        result
    }

    /// Runs `work` on a connection that counts its bytes in `received`. `position` is called each turn, and says how much of the file is
    /// there.
    ///
    /// # Errors
    /// [`Problem::Silent`] or [`Problem::Slow`] when the server was waited for too long. The connection is of no more use then.
    pub(super) async fn attend<T>(
        &mut self,
        received: Rc<Cell<u64>>,
        work: impl Future<Output = T>,
        mut position: impl FnMut() -> u64,
    ) -> Result<T, Problem> {
        let mut heard = (received.get(), self.stack.now());
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(result));
            }
            let now = self.stack.now();
            if received.get() != heard.0 {
                heard = (received.get(), now);
            }
            if !self.pace.holds(position(), now) {
                let floor = self.pace.floor();
                return Poll::Ready(Err(Problem::Slow { floor }));
            }
            match self.silence(heard.0, heard.1) {
                Some(problem) => Poll::Ready(Err(problem)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Whether nothing has come for too long on a connection that brought `received` bytes, the last at `heard`.
    fn silence(&self, received: u64, heard: Instant) -> Option<Problem> {
        let silent = self.stack.now() - heard;
        let suspicious = received < PROVEN && self.stack.path_mtu(self.server) > SAFE_MTU;
        let limit = if suspicious { SUSPICION } else { SILENCE };
        if silent < limit {
            return None;
        }
        if suspicious {
            expect_small_packets(self.stack, self.server);
        }
        Some(Problem::Silent {
            seconds: silent.secs(),
        })
    }
}

/// A connection to `server` stood still from its first packets on. The next ones ask for packets that fit any path.
fn expect_small_packets(stack: &Stack, server: IpAddr) {
    log::warn!(
        "{server} answers, then nothing comes: asking for packets of {SAFE_MTU} bytes, in case the path swallows larger ones"
    );
    stack.set_path_mtu(server, SAFE_MTU);
}
