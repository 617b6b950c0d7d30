//! The path to a host and back, by echo requests.

use crate::since;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wireboot_net::{Duration, EchoSocket, Instant, NetError, Stack};
use wireboot_report::servers::{Echoes, Path};

/// Requests to find whether the host answers at all, and how long each is waited for. An answer to a former one counts, too.
const FIRST: usize = 3;
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Requests of one length, and the time between them.
const ECHOES: u16 = 100;
const INTERVAL: Duration = Duration::from_millis(10);
/// How long the last answers of those may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a short packet.
const SHORT: u16 = 64;
/// Every host takes packets of so many bytes (RFC 791 section 3.1), and every link carries them (RFC 8200 section 5).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;
/// How often a packet is tried before it counts as too long. A way that loses every tenth packet there and every tenth back loses all once in 150 times.
const TRIES: u32 = 3;
/// How long an answer is waited for there: four times the way there and back, within limits.
const LEAST_WAIT: Duration = Duration::from_millis(150);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Measures the path. `None` where the host does not answer.
pub(crate) async fn measure(stack: &Stack, remote: IpAddr) -> Option<Path> {
    let (least, unspecified) = match remote {
        IpAddr::V4(_) => (LEAST_V4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (LEAST_V6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    // That of the link for this version of IP. Of the host itself, a transfer may have found less.
    let link_mtu = stack.path_mtu(unspecified);
    let mut probe = Probe {
        stack,
        socket: stack.echo(remote),
        sequence: 0,
        wait: FIRST_PATIENCE,
    };
    let way = probe.first().await?;
    probe.wait = (way * 4).clamp(LEAST_WAIT, LONGEST_WAIT);
    let mtu = probe.longest(least, link_mtu).await;
    let told = match mtu {
        Some(mtu) if mtu < link_mtu => probe.is_told(mtu + 1).await,
        _ => false,
    };
    let mut echoes = Vec::from([probe.train(SHORT).await]);
    if let Some(mtu) = mtu {
        echoes.push(probe.train(mtu).await);
    }
    Some(Path {
        on_link: stack.is_on_link(remote),
        link_mtu_bytes: link_mtu,
        mtu_bytes: mtu,
        told,
        echoes,
    })
}

struct Probe<'s> {
    stack: &'s Stack,
    socket: EchoSocket,
    /// Of the last request: answers to former ones are told from it.
    sequence: u16,
    wait: Duration,
}

impl Probe<'_> {
    /// The way there and back; `None` where no request is answered.
    async fn first(&mut self) -> Option<Duration> {
        let mut sent = Vec::new();
        for _ in 0..FIRST {
            let begin = self.stack.now();
            self.send(SHORT).ok()?;
            sent.push((self.sequence, begin));
            let of_any = |sequence| {
                let request = sent.iter().find(|(known, _)| *known == sequence);
                request.map(|(_, begin)| *begin)
            };
            if let Some(begin) = self.wait_for(of_any).await {
                return Some(Duration::from_micros(since(self.stack, begin).await));
            }
        }
        None
    }

    fn send(&mut self, packet_bytes: u16) -> Result<(), NetError> {
        let next = self.sequence.wrapping_add(1);
        self.socket.send(next, packet_bytes)?;
        self.sequence = next;
        Ok(())
    }

    /// Looks at replies, until one is wanted or the time is over.
    async fn wait_for<T>(&self, wanted: impl Fn(u16) -> Option<T>) -> Option<T> {
        let end = self.stack.now() + self.wait;
        loop {
            // Before the time: the processor may have been away for long. All are taken, so that none waits for the next request.
            let replies = core::iter::from_fn(|| self.socket.try_receive());
            if let Some(found) = replies.filter_map(&wanted).last() {
                return Some(found);
            }
            if self.stack.now() >= end {
                return None;
            }
            self.stack.next_turn().await;
        }
    }

    /// Whether packets of so many bytes come there and back.
    async fn fits(&mut self, packet_bytes: u16) -> bool {
        for _ in 0..TRIES {
            if self.send(packet_bytes).is_err() {
                return false;
            }
            let asked = self.sequence;
            let this = |sequence| (sequence == asked).then_some(());
            if self.wait_for(this).await.is_some() {
                return true;
            }
        }
        false
    }

    /// The longest packet that comes there and back, of `least` to `most` bytes. `None` where those of `least` do not: somebody keeps long requests away.
    async fn longest(&mut self, least: u16, most: u16) -> Option<u16> {
        if self.fits(most).await {
            return Some(most);
        }
        if most <= least || !self.fits(least).await {
            return None;
        }
        let (mut fits, mut fails) = (least, most);
        while fails - fits > 1 {
            // What somebody on the path says is mostly right, and then the next length is too long.
            let told = self.socket.too_big();
            let next = match told.filter(|mtu| (fits..fails).contains(mtu)) {
                Some(mtu) if mtu == fits => fits + 1,
                Some(mtu) => mtu,
                None => fits.midpoint(fails),
            };
            self.socket.forget_too_big();
            if self.fits(next).await {
                fits = next;
                if told == Some(next) && !self.fits(next + 1).await {
                    return Some(next);
                }
            } else {
                fails = next;
            }
        }
        Some(fits)
    }

    /// Whether somebody on the path says of packets of so many bytes that they are too long.
    async fn is_told(&mut self, packet_bytes: u16) -> bool {
        !self.fits(packet_bytes).await && self.socket.too_big().is_some()
    }

    /// Sends requests at even distances, and waits for the answers.
    async fn train(&mut self, packet_bytes: u16) -> Echoes {
        let mut sent: Vec<Instant> = Vec::new();
        let mut train = Train::new(self.sequence);
        let mut came: Vec<u16> = Vec::new();
        let begin = self.stack.now();
        loop {
            let now = self.stack.now();
            // They came in the turn before, after that had begun.
            for sequence in came.drain(..) {
                train.take(sequence, now, &sent);
            }
            came.extend(core::iter::from_fn(|| self.socket.try_receive()));
            let all = sent.len() == usize::from(ECHOES);
            if !all && now >= begin + INTERVAL * sent.len() as u32 {
                match self.send(packet_bytes) {
                    Ok(()) => sent.push(now),
                    // The card is slow, or stands still.
                    Err(NetError::Full) => {}
                    Err(_) => break,
                }
            }
            let last = sent.last().copied().unwrap_or(begin);
            let over = all && train.answered() == sent.len() || now >= last + PATIENCE;
            if over && came.is_empty() {
                break;
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
