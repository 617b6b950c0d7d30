//! A link that a loader's network stack and our host share: both have the station's Ethernet address, and both hear each frame.

use crate::link::Link;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Frames that wait for one of the two while the other one works. Further ones are lost, as on a wire.
const QUEUE: usize = 256;

/// The link, of which its owner is one user by [`Link`], and the host the other.
pub struct Hub<L> {
    link: L,
    /// The loader's stack listens.
    up: bool,
    host_up: bool,
    for_loader: VecDeque<Vec<u8>>,
    for_host: VecDeque<Vec<u8>>,
}

impl<L: Link> Hub<L> {
    /// On `link`, with nobody listening.
    pub fn new(link: L) -> Self {
        Self {
            link,
            up: false,
            host_up: false,
            for_loader: VecDeque::new(),
            for_host: VecDeque::new(),
        }
    }

    /// Begins or ends to receive for the host.
    pub fn set_host_up(&mut self, up: bool) {
        if up == self.host_up {
            return;
        }
        self.host_up = up;
        self.for_host.clear();
        if !self.up {
            self.link.set_up(up);
        }
    }

    /// Whether the host receives.
    pub fn is_host_up(&self) -> bool {
        self.host_up
    }

    /// The next frame for the host.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.for_host.pop_front() {
            return Some(frame);
        }
        if !self.host_up {
            return None;
        }
        let frame = self.link.peek()?.to_vec();
        self.link.skip();
        if self.up && self.for_loader.len() < QUEUE {
            self.for_loader.push_back(frame.clone());
        }
        Some(frame)
    }
}

impl<L: Link> Link for Hub<L> {
    fn set_up(&mut self, up: bool) {
        self.up = up;
        self.for_loader.clear();
        if !self.host_up {
            self.link.set_up(up);
        }
    }

    fn send(&mut self, header: &[u8; 14], payload: &[u8]) -> bool {
        self.link.send(header, payload)
    }

    fn peek(&mut self) -> Option<&[u8]> {
        if !self.up {
            return None;
        }
        // What the host gets a copy of is looked at once: the link may show another frame the next time.
        if self.for_loader.is_empty() && self.host_up && self.for_host.len() < QUEUE {
            let frame = self.link.peek()?.to_vec();
            self.link.skip();
            self.for_host.push_back(frame.clone());
            self.for_loader.push_back(frame);
        }
        match self.for_loader.front() {
            Some(frame) => Some(frame),
            None => self.link.peek(),
        }
    }

    fn skip(&mut self) {
        if self.up && self.for_loader.pop_front().is_none() {
            self.link.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Wire {
        frames: VecDeque<Vec<u8>>,
        ups: Vec<bool>,
    }

    impl Link for Wire {
        fn set_up(&mut self, up: bool) {
            self.ups.push(up);
        }

        fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
            true
        }

        fn peek(&mut self) -> Option<&[u8]> {
            self.frames.front().map(Vec::as_slice)
        }

        fn skip(&mut self) {
            self.frames.pop_front();
        }
    }

    fn hub(frames: &[u8]) -> Hub<Wire> {
        let mut hub = Hub::new(Wire::default());
        hub.link.frames = frames.iter().map(|&byte| alloc::vec![byte]).collect();
        hub
    }

    fn loader(hub: &mut Hub<impl Link>) -> Option<u8> {
        let byte = hub.peek().map(|frame| frame[0]);
        hub.skip();
        byte
    }

    fn host(hub: &mut Hub<impl Link>) -> Option<u8> {
        hub.receive().map(|frame| frame[0])
    }

    #[test]
    fn both_hear_each_frame_in_order_whoever_looks_first() {
        let mut both = hub(&[1, 2, 3, 4, 5]);
        both.set_up(true);
        both.set_host_up(true);
        assert_eq!(loader(&mut both), Some(1));
        // Seen, and not taken yet.
        assert_eq!(both.peek(), Some(&[2][..]));
        let heard = [(); 4].map(|()| host(&mut both));
        assert_eq!(heard, [Some(1), Some(2), Some(3), Some(4)]);
        let heard = [(); 5].map(|()| loader(&mut both));
        assert_eq!(heard, [Some(2), Some(3), Some(4), Some(5), None]);
        assert_eq!((host(&mut both), host(&mut both)), (Some(5), None));
    }

    /// It shows another of its frames at each second look, as the near end may, which has some of its own.
    #[derive(Default)]
    struct Fickle {
        frames: VecDeque<Vec<u8>>,
        looks: u32,
    }

    impl Link for Fickle {
        fn set_up(&mut self, _: bool) {}

        fn send(&mut self, _: &[u8; 14], _: &[u8]) -> bool {
            true
        }

        fn peek(&mut self) -> Option<&[u8]> {
            self.looks += 1;
            if self.looks.is_multiple_of(2) {
                self.frames.rotate_left(1.min(self.frames.len()));
            }
            self.frames.front().map(Vec::as_slice)
        }

        fn skip(&mut self) {
            self.frames.pop_front();
        }
    }

    #[test]
    fn each_hears_each_frame_once_whichever_the_link_shows() {
        let mut both = Hub::new(Fickle::default());
        both.link.frames = (1..=6).map(|byte| alloc::vec![byte]).collect();
        both.set_up(true);
        both.set_host_up(true);
        let mut heard = [Vec::<u8>::new(), Vec::new()];
        for _ in 0..6 {
            heard[0].extend(loader(&mut both));
            heard[1].extend(host(&mut both));
        }
        for mut heard in heard {
            heard.sort_unstable();
            assert_eq!(heard, [1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn who_does_not_listen_hears_nothing() {
        let mut one = hub(&[1]);
        assert_eq!((loader(&mut one), host(&mut one)), (None, None));
        one.set_host_up(true);
        assert_eq!((loader(&mut one), host(&mut one)), (None, Some(1)));
        one.link.frames.push_back(alloc::vec![2]);
        one.set_host_up(false);
        one.set_up(true);
        assert_eq!((host(&mut one), loader(&mut one)), (None, Some(2)));
    }

    #[test]
    fn the_link_is_up_while_somebody_listens() {
        let mut both = hub(&[]);
        both.set_up(true);
        both.set_host_up(true);
        both.set_host_up(true);
        both.set_up(false);
        both.set_host_up(false);
        assert_eq!(both.link.ups, [true, false]);
    }

    #[test]
    fn a_user_who_sleeps_does_not_fill_the_memory() {
        let mut both = hub(&[7; 3 * QUEUE]);
        both.set_up(true);
        both.set_host_up(true);
        while host(&mut both).is_some() {}
        let mut count = 0;
        while loader(&mut both).is_some() {
            count += 1;
        }
        assert_eq!(count, QUEUE);
        both.link
            .frames
            .extend((0..3 * QUEUE).map(|_| alloc::vec![8]));
        while loader(&mut both).is_some() {}
        assert_eq!(both.for_host.len(), QUEUE);
    }

    /// For each of the two it is a link: what was received and not taken is forgotten, and what comes afterwards is heard.
    #[test]
    fn who_listens_anew_hears_what_is_new() {
        let mut both = hub(&[1]);
        both.set_up(true);
        both.set_host_up(true);
        assert_eq!(loader(&mut both), Some(1));
        both.set_host_up(false);
        both.set_host_up(true);
        assert_eq!(host(&mut both), None);
        both.link.frames.push_back(alloc::vec![2]);
        assert_eq!(host(&mut both), Some(2));
        both.set_up(false);
        both.set_up(true);
        assert_eq!(loader(&mut both), None);
        for host_first in [true, false] {
            let mut both = hub(&[3]);
            both.set_up(true);
            both.set_host_up(true);
            // The host has a copy of it.
            assert_eq!(both.peek(), Some(&[3][..]));
            if host_first {
                both.set_host_up(false);
            }
            both.set_up(false);
            both.set_host_up(false);
            both.link.frames = [alloc::vec![4]].into();
            both.set_host_up(true);
            assert_eq!(host(&mut both), Some(4), "{host_first}");
        }
    }
}
