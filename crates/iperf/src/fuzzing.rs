//! The body of the fuzz target: what must hold for any bytes of a server. It panics when it does not.

use crate::session::{Session, Step};
use alloc::vec::Vec;

/// Whatever a server says, in whatever pieces, the steps of a test come in their order, each once, and it ends.
pub fn fuzz_session(data: &[u8]) {
    let Some((&piece, said)) = data.split_first() else {
        return;
    };
    let mut session = Session::new(Vec::from([1, 3]));
    let mut last = 0;
    for mut bytes in said.chunks(usize::from(piece).max(1)) {
        loop {
            let taken = session.hear(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            let Ok(step) = session.next() else {
                return;
            };
            let Some(step) = step else {
                // A message that is not whole is never longer than what is kept.
                assert!(bytes.is_empty() || taken > 0);
                break;
            };
            let number = match &step {
                Step::Parameters => 1,
                Step::Streams => 2,
                Step::Run => 3,
                Step::Results => 4,
                Step::Told(results) => {
                    assert_eq!(results.streams.len(), 2);
                    5
                }
                Step::Done => 6,
            };
            assert_eq!(number, last + 1);
            last = number;
            if step == Step::Run {
                session.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_server(data in proptest::collection::vec(prop_oneof![Just(9_u8), Just(10), Just(1), Just(2), Just(13), any::<u8>()], 0..60)) {
            super::fuzz_session(&data);
        }
    }
}
