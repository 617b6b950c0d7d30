//! Order among few things.

/// Sorts in time that grows with the square of the number of things; equals stay in their order. The library's sorts, made for many, are 10 kB
/// of code for each type.
pub fn insertion<T>(things: &mut [T], before: impl Fn(&T, &T) -> bool) {
    for end in 1..things.len() {
        for at in (1..=end).rev() {
            match things.get_mut(at - 1..=at) {
                Some([one, other]) if before(other, one) => core::mem::swap(one, other),
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn it_sorts_as_the_library_does(things in prop::collection::vec((0..8_u8, any::<u8>()), 0..40)) {
            let mut ours: Vec<_> = things.clone();
            super::insertion(&mut ours, |one, other| one.0 < other.0);
            let mut theirs = things;
            theirs.sort_by_key(|one| one.0);
            prop_assert_eq!(ours, theirs);
        }
    }
}
