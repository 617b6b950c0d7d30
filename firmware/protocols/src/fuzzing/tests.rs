//! Sequences of calls, each with something that a loader may do wrong.

mod groups;
mod heap;
mod http;
mod levels;
mod link;
mod tables;

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_calls_keep_the_promises(data in prop::collection::vec(any::<u8>(), 0..1500)) {
        fuzz_loader_calls(&data);
    }
}
