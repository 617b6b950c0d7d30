//! The path to a host and back, by echo requests.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use wireboot_net::{Duration, EchoSocket, Instant, NetError, Stack};
use wireboot_report::servers::{Echoes, Path};

/// Requests to find whether the host answers at all, and how long each is waited for.
const FIRST: u16 = 3;
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
/// Requests of one length, and the time between them.
const ECHOES: u16 = 100;
const INTERVAL: Duration = Duration::from_millis(10);
/// How long the last answers of those may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a short packet.
const SHORT: u16 = 64;
/// Packets of so many bytes are carried everywhere (RFC 791 section 3.1, RFC 8200 section 5).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;
/// How often a packet is tried before it counts as too long. A way that loses every tenth packet there and every tenth back loses all once in 150 times.
const TRIES: u32 = 3;
/// How long an answer is waited for there: four times the way there and back, but not less.
const LEAST_WAIT: Duration = Duration::from_millis(150);

/// Measures the path. `None` where the host does not answer.
pub(crate) async fn measure(stack: &Stack, remote: IpAddr) -> Option<Path> {
    let link_mtu = stack.mtu();
    let short = SHORT.max(least(remote).min(SHORT));
    let mut probe = Probe {
        stack,
        socket: stack.echo(remote),
        sequence: 0,
        wait: FIRST_PATIENCE,
    };
    let way = probe.first(short).await?;
    probe.wait = (way * 4).max(LEAST_WAIT);
    let mtu = probe.longest(least(remote), link_mtu).await;
    let mut echoes = Vec::from([probe.train(short).await]);
    if mtu > short {
        echoes.push(probe.train(mtu).await);
    }
    Some(Path {
        on_link: stack.is_on_link(remote),
        link_mtu_bytes: link_mtu,
        mtu_bytes: mtu,
        told: mtu < link_mtu && probe.socket.too_big().is_some(),
        echoes,
    })
}

fn least(remote: IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => LEAST_V4,
        IpAddr::V6(_) => LEAST_V6,
    }
}

struct Probe<'s> {
    stack: &'s Stack,
    socket: EchoSocket,
    /// Of the next request: answers to former ones are told from it.
    sequence: u16,
    wait: Duration,
}

impl Probe<'_> {
    /// The way there and back; `None` where no request is answered.
    async fn first(&mut self, packet_bytes: u16) -> Option<Duration> {
        for _ in 0..FIRST {
            let begin = self.stack.now();
            if self.comes(packet_bytes).await {
                return Some(self.stack.now() - begin);
            }
        }
        None
    }

    /// Sends one request. Whether it is answered in time.
    async fn comes(&mut self, packet_bytes: u16) -> bool {
        let (sequence, end) = (self.next(), self.stack.now() + self.wait);
        if self.socket.send(sequence, packet_bytes).is_err() {
            return false;
        }
        while self.stack.now() < end {
            let replies = core::iter::from_fn(|| self.socket.try_receive());
            // All are taken: none is to wait for the next request.
            if replies.filter(|reply| reply.sequence == sequence).count() > 0 {
                return true;
            }
            self.stack.next_turn().await;
        }
        false
    }

    fn next(&mut self) -> u16 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Whether packets of so many bytes come there and back.
    async fn fits(&mut self, packet_bytes: u16) -> bool {
        for _ in 0..TRIES {
            if self.comes(packet_bytes).await {
                return true;
            }
        }
        false
    }

    /// The longest packet that comes there and back, from `least` bytes, which do, to `most`.
    async fn longest(&mut self, least: u16, most: u16) -> u16 {
        if most <= least || self.fits(most).await {
            return most;
        }
        let (mut fits, mut fails) = (least, most);
        while fails - fits > 1 {
            // What somebody on the path says is mostly right.
            let told = self
                .socket
                .too_big()
                .filter(|mtu| (fits + 1..fails).contains(mtu));
            let next = told.unwrap_or(fits.midpoint(fails));
            if !self.fits(next).await {
                fails = next;
            } else if told.is_some() {
                return next;
            } else {
                fits = next;
            }
        }
        fits
    }

    /// Sends requests at even distances, and waits for the answers.
    async fn train(&mut self, packet_bytes: u16) -> Echoes {
        let mut sent: Vec<Instant> = Vec::new();
        let mut train = Train::new(self.sequence);
        let begin = self.stack.now();
        loop {
            let now = self.stack.now();
            let number = sent.len() as u32;
            if sent.len() < usize::from(ECHOES) {
                if now >= begin + INTERVAL * number {
                    match self
                        .socket
                        .send(self.sequence.wrapping_add(1), packet_bytes)
                    {
                        Ok(()) => {
                            self.next();
                            sent.push(now);
                        }
                        // The card is slow.
                        Err(NetError::Full) => {}
                        Err(_) => break,
                    }
                }
            } else if train.answered() == sent.len()
                || sent.last().is_none_or(|last| now >= *last + PATIENCE)
            {
                break;
            }
            while let Some(reply) = self.socket.try_receive() {
                train.take(reply.sequence, reply.at, &sent);
            }
            self.stack.next_turn().await;
        }
        train.result(packet_bytes, sent.len())
    }
}

/// Answers to requests that are numbered one after the other.
struct Train {
    /// The number before the first.
    before: u16,
    /// How long each answer took, in microseconds.
    took: Vec<Option<u64>>,
    /// The place of the latest request that was answered.
    newest: Option<usize>,
    reordered: u32,
    repeated: u32,
}

impl Train {
    fn new(before: u16) -> Self {
        Self {
            before,
            took: vec![None; ECHOES.into()],
            newest: None,
            reordered: 0,
            repeated: 0,
        }
    }

    /// Takes an answer that came at a time. `sent`: when the requests were.
    fn take(&mut self, sequence: u16, at: Instant, sent: &[Instant]) {
        let place = usize::from(sequence.wrapping_sub(self.before).wrapping_sub(1));
        // Others are answers to what was sent before.
        let (Some(sent), Some(took)) = (sent.get(place), self.took.get_mut(place)) else {
            return;
        };
        if took.is_some() {
            self.repeated += 1;
            return;
        }
        *took = Some((at - *sent).total_micros());
        if self.newest.is_some_and(|newest| place < newest) {
            self.reordered += 1;
        } else {
            self.newest = Some(place);
        }
    }

    fn answered(&self) -> usize {
        self.took.iter().flatten().count()
    }

    fn result(&self, packet_bytes: u16, asked: usize) -> Echoes {
        let mut took: Vec<u64> = self.took.iter().flatten().copied().collect();
        wireboot_net::sort::insertion(&mut took, |one, other| one < other);
        let at = |place: usize| took.get(place).copied().unwrap_or(0);
        Echoes {
            packet_bytes,
            asked: asked as u32,
            answered: took.len() as u32,
            reordered: self.reordered,
            repeated: self.repeated,
            least_us: at(0),
            median_us: at(took.len() / 2),
            most_us: at(took.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_once_and_in_order() {
        let at = Instant::from_millis;
        let sent: Vec<Instant> = (0..4).map(|number| at(10 * number)).collect();
        // The numbers wrap.
        let mut train = Train::new(u16::MAX - 1);
        for (sequence, came) in [(u16::MAX, 5), (1, 25), (0, 27), (1, 28), (7, 29), (200, 30)] {
            train.take(sequence, at(came), &sent);
        }
        assert_eq!(
            train.result(64, sent.len()),
            Echoes {
                packet_bytes: 64,
                asked: 4,
                answered: 3,
                reordered: 1,
                repeated: 1,
                least_us: 5_000,
                median_us: 5_000,
                most_us: 17_000,
            }
        );
    }
}
